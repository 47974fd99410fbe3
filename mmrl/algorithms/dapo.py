"""DAPO: decoupled clip and dynamic sampling policy optimisation (arXiv 2503.14476).

    R' = R + overlong shaping: 0 up to limit - buffer tokens, from there falling to -overlong_penalty at the limit
    A  = GRPO's of R'
    loss: PPO's clipped surrogate with clip-higher (0.2, 0.28), the mean over tokens

Where every response failed (`outcome_gate`, unless it is off) the shaping is left out: among wrong answers the shorter
one is no better. Groups without spread are dropped, and more prompts are sampled in their place (`sampling_rounds`).
Spread is that of R: the paper asks for groups that are neither all right nor all wrong, and length alone must not make
one of these.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.advantages import group_normalised_advantages
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.algorithms.outcome import failed
from mmrl.config.algorithm import DapoConfig


class DapoAlgorithm(ClippedAlgorithm[DapoConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        has_failed = all(failed(reward, self.shaping_parts) for reward in group.group.rewards)
        is_shaped = self.config.gate == "off" or not has_failed
        returns = group.returns + self._shaping(group.lengths) if is_shaped else group.returns
        return group_normalised_advantages(returns, scores=group.scores)

    def _shaping(self, lengths: Tensor) -> Tensor:
        """What a response's length takes from its score, (rollouts,), at most 0; lengths in sampled tokens."""
        assert self.response_limit is not None, "overlong shaping needs the longest response that is sampled"
        buffer = self.config.overlong_buffer * self.response_limit
        if buffer == 0:
            return lengths * 0.0
        excess = (lengths - (self.response_limit - buffer)) / buffer
        return -self.config.overlong_penalty * excess.clamp(0, 1)
