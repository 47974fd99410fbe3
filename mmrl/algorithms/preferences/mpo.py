"""MPO: mixed preference optimisation (arXiv 2411.10442, section 3.2). c and j are the implicit rewards.

    loss = w_p · DPO + w_q · (-log sigma(c - delta) - log sigma(-(j - delta))) + w_g · NLL(chosen)

The middle term is BCO's (arXiv 2404.04656); delta is the mean of all implicit rewards of earlier updates, which a
checkpoint carries. NLL is the mean over the answer's tokens, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import MpoConfig


class MpoPreference(LogRatioPreference[MpoConfig]):
    """delta: the mean of the implicit rewards so far, 0 before the first update."""

    def __init__(self, config: MpoConfig) -> None:
        super().__init__(config)
        self.delta = 0.0
        self._num_rewards = 0.0

    def pair_losses(self, pairs: Pairs) -> Tensor:
        config = self.config
        chosen, rejected = self.rewards(pairs.chosen), self.rewards(pairs.rejected)
        preference = -logsigmoid(chosen - rejected)
        quality = -logsigmoid(chosen - self.delta) - logsigmoid(-(rejected - self.delta))
        return (
            config.preference_weight * preference
            + config.quality_weight * quality
            - config.generation_weight * pairs.chosen.mean_logprobs
        )

    def observe(self, metrics: Mapping[str, float], *, num_answers: int) -> dict[str, float]:
        used = self.delta
        if "rewards/chosen" in metrics:
            mean = (metrics["rewards/chosen"] + metrics["rewards/rejected"]) / 2
            self._num_rewards += num_answers
            self.delta += (mean - self.delta) * num_answers / self._num_rewards
        return {"preference/delta": used}

    def state_dict(self) -> dict[str, Any]:
        return {"delta": self.delta, "num_rewards": self._num_rewards}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.delta, self._num_rewards = float(state["delta"]), float(state["num_rewards"])
