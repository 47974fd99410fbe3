"""What one optimiser step of a reward model minimises (Bradley and Terry 1952; with margins arXiv 2307.09288).

For each pair, with s_c and s_r the scores of its chosen and rejected answer and m its margin:

    L = -log sigma(s_c - s_r - m) + centring · (s_c + s_r)^2

and the loss of the update is the mean over its pairs. Centring (arXiv 2312.09244) keeps scores around zero, where a
difference of two alone would let them drift.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.pairs import pair_rows
from mmrl.batch import GroupBatch, LossOutput


@dataclass(frozen=True, eq=False)
class ScoredPairs:
    """(pairs,) scores of the chosen and the rejected answers, and margins."""

    chosen: Tensor
    rejected: Tensor
    margins: Tensor

    @classmethod
    def of(cls, batch: GroupBatch, scores: Tensor) -> ScoredPairs:
        """scores: (B,)."""
        chosen, rejected = (rows.to(scores.device) for rows in pair_rows(batch))
        margins = torch.zeros_like(scores) if batch.margins is None else batch.margins.to(scores)
        return cls(scores[chosen], scores[rejected], margins[chosen])

    def losses(self, *, centring: float) -> Tensor:
        """(pairs,)."""
        losses = -logsigmoid(self.chosen - self.rejected - self.margins)
        if centring > 0:
            losses = losses + centring * (self.chosen + self.rejected).square()
        return losses


class BradleyTerryObjective:
    """The objective of one update; `batch` is the whole of it."""

    def __init__(self, batch: GroupBatch, *, centring: float) -> None:
        self._num_pairs = max(len(pair_rows(batch)[0]), 1)
        self._centring = centring

    def __call__(self, micro_batch: GroupBatch, scores: Tensor) -> LossOutput:
        """scores: (B,) with gradients."""
        pairs = ScoredPairs.of(micro_batch, scores)
        losses = pairs.losses(centring=self._centring)
        return LossOutput(losses.sum() / self._num_pairs, _metrics(pairs, losses), {})


def _metrics(pairs: ScoredPairs, losses: Tensor) -> dict[str, tuple[float, float]]:
    with torch.no_grad():
        differences = pairs.chosen - pairs.rejected
        sums = {
            "reward_model/loss": losses,
            "reward_model/accuracy": (differences > 0).double() + 0.5 * (differences == 0).double(),
            "reward_model/margin": differences,
            "reward_model/score_chosen": pairs.chosen,
            "reward_model/score_rejected": pairs.rejected,
        }
        values = torch.stack([tensor.double().sum() for tensor in sums.values()]).tolist()
    return {name: (value, float(len(losses))) for name, value in zip(sums, values, strict=True)}
