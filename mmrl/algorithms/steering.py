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

        coef <- coef + step if entropy < target else coef - step, within [0, max_coef]
        weight = coef if entropy <= target else 0

    Departure: the entropy is that of the step before, as its update measured it (the paper's is of the step itself),
    since the policy's entropy over a step is known only after a pass over it. In a run's first step the weight is coef.
    coef and entropy are what a resumed run must know.
    """

    def __init__(self, coef: float, target: EntropyTargetConfig | None) -> None:
        self.coef = coef
        self.entropy: float | None = None
        self._target = target

    @property
    def value(self) -> float:
        """The weight of the step that comes."""
        is_held_back = self._target is not None and self.entropy is not None and self.entropy > self._target.entropy
        return 0.0 if is_held_back else self.coef

    @property
    def is_used(self) -> bool:
        """Whether the entropy must be known, be it only to be measured."""
        return self.coef > 0 or self._target is not None

    def observe(self, entropy: float) -> None:
        """entropy: mean over the step's sampled tokens, in nats."""
        if self._target is not None:
            change = self._target.step if entropy < self._target.entropy else -self._target.step
            self.coef = min(max(self.coef + change, 0.0), self._target.max_coef)
            self.entropy = entropy
