"""A likelihood term on the responses that did their task, beside what a policy objective minimises."""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.objective import PolicyObjective
from mmrl.batch import GroupBatch, LossOutput, TokenStats


class ImitationObjective:
    """policy objective + coef * mean of -log pi over the sampled tokens of succeeded responses (VAPO, 2504.05118).

    batch: the whole update, with `succeeded`; the mean is over its tokens, whatever the micro-batches.
    """

    def __init__(self, policy: PolicyObjective, batch: GroupBatch, *, coef: float) -> None:
        self.needs_entropy = policy.needs_entropy
        self._policy = policy
        self._coef = coef
        self._num_tokens = int(_tokens_to_imitate(batch).sum())

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        output = self._policy(micro_batch, stats)
        counted = _tokens_to_imitate(micro_batch).to(stats.logprobs.device)
        loss = -self._coef * (stats.logprobs * counted).sum() / max(self._num_tokens, 1)
        total, share = output.sums["actor/loss"]
        sums = {
            **output.sums,
            "actor/imitation_loss": (float(loss.detach()), share),
            "actor/loss": (total + float(loss.detach()), share),
        }
        return LossOutput(loss=output.loss + loss, sums=sums, maxima=output.maxima)


def _tokens_to_imitate(batch: GroupBatch) -> Tensor:
    assert batch.succeeded is not None, "imitation needs to know which responses succeeded"
    return batch.response_mask * batch.succeeded[:, None]
