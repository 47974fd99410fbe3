"""Online DPO: direct preference optimisation on pairs that the policy samples itself (arXiv 2402.04792).

    A = 1 for the best response of a group, -1 for its worst, 0 for the others; of equals the first
    loss of a pair: DPO's, -log sigma(Delta), or IPO's; see `preferences`

Rewards rank the responses: rules, a reward model, a judge. A response learns by what its advantage is when the update
begins, so that a stage of the user's own may rank them in another way. Groups without spread hold no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mmrl.algorithms.advantages import has_spread
from mmrl.algorithms.base import Algorithm, GroupScores
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens
from mmrl.algorithms.preferences.base import PairObjective
from mmrl.algorithms.preferences.dpo import DpoPreference
from mmrl.algorithms.preferences.ipo import IpoPreference
from mmrl.algorithms.selection import Selection, scores_of
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import OnlineDpoConfig
from mmrl.config.preference import DpoConfig, IpoConfig
from mmrl.types import ScoredGroup


class OnlineDpoAlgorithm(Algorithm[OnlineDpoConfig]):
    def select(self, groups: Sequence[ScoredGroup]) -> Selection:
        """Of each group only its pair, so that nothing is forwarded that teaches nothing."""
        selection = super().select(groups)
        return Selection([_pair_of(group) for group in selection.groups], selection.stats)

    def group_advantages(self, group: GroupScores) -> Tensor:
        advantages = torch.zeros_like(group.scores)
        if has_spread(group.scores):
            advantages[group.scores.argmax()] = 1.0
            advantages[group.scores.argmin()] = -1.0
        return advantages

    def prepare_update(self, batch: GroupBatch) -> tuple[GroupBatch, dict[str, float]]:
        """Of each prompt's responses that of the largest advantage is chosen, that of the smallest rejected; a prompt
        whose responses all have the same one holds no pair."""
        assert batch.advantages is not None, "responses are ranked before the update"
        preferred = torch.full((batch.num_rows,), -1.0)
        mask = batch.response_mask
        ranks = (batch.advantages * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        usable = mask.sum(-1) > 0
        for prompt in range(len(batch.prompts)):
            rows = torch.nonzero((batch.prompt_of_row == prompt) & usable).flatten()
            if len(rows) > 1 and float(ranks[rows].max()) > float(ranks[rows].min()):
                preferred[rows[ranks[rows].argmax()]] = 1.0
                preferred[rows[ranks[rows].argmin()]] = 0.0
        return batch.with_(preferred=preferred, whole_groups=True), {"groups/pairs": float((preferred > 0).sum())}

    def objective(self, mini_batch: GroupBatch, *, response_limit: int, first_update: bool) -> PairObjective:  # type: ignore[override]
        """The mean over the pairs of the mini-batch."""
        beta = self.config.beta
        loss = IpoPreference(IpoConfig(beta=beta)) if self.config.loss == "ipo" else DpoPreference(DpoConfig(beta=beta))
        return PairObjective(loss, mini_batch)

    def policy_loss(self, tokens: PolicyTokens) -> PolicyLoss:
        raise NotImplementedError("online_dpo has a loss of pairs and none of tokens")


def _pair_of(group: ScoredGroup) -> ScoredGroup:
    """The group with its best and its worst response alone, in their order."""
    scores = scores_of(group)
    kept = sorted({int(scores.argmax()), int(scores.argmin())})
    rollouts = tuple(group.group.rollouts[index] for index in kept)
    return replace(
        group, group=replace(group.group, rollouts=rollouts), rewards=tuple(group.rewards[index] for index in kept)
    )
