"""Weights of a loss term that are steered by what the last step measured; checkpoints carry them."""

from __future__ import annotations

from mmrl.config.algorithm_base import EntropyTargetConfig, KlConfig

MAX_RELATIVE_ERROR = 0.2


class KlWeight:
    """The weight of the KL to the reference, fixed or steered to a target (arXiv 1909.08593, section 2.2):

        error = clip(KL / target - 1, -0.2, 0.2)        weight <- weight (1 + error * responses / horizon)

    Departure: KL is the mean of k3 per sampled token, where the paper has the sum over a response.
    """

    def __init__(self, config: KlConfig) -> None:
        self.value = config.coef
        self._target = config.target
        self._horizon = config.horizon

    def observe(self, kl: float, *, num_responses: int) -> None:
        """kl: mean k3 to the reference in the step. num_responses: sampled in it."""
        if self._target is not None:
            error = min(max(kl / self._target - 1, -MAX_RELATIVE_ERROR), MAX_RELATIVE_ERROR)
            self.value *= 1 + error * num_responses / self._horizon


class EntropyWeight:
    """The weight of the entropy bonus, fixed or steered to a target (Skywork-OR1, arXiv 2505.22312, section 4):

    weight <- weight + step if entropy < target else weight - step, within [0, max_coef]
    """

    def __init__(self, coef: float, target: EntropyTargetConfig | None) -> None:
        self.value = coef
        self._target = target

    @property
    def is_used(self) -> bool:
        """Whether the entropy must be known, be it only to be measured."""
        return self.value > 0 or self._target is not None

    def observe(self, entropy: float) -> None:
        """entropy: mean over the step's sampled tokens, in nats."""
        if self._target is not None:
            change = self._target.step if entropy < self._target.entropy else -self._target.step
            self.value = min(max(self.value + change, 0.0), self._target.max_coef)
