"""What the configs of all rewards share."""

from __future__ import annotations

from typing import Literal

from mmrl.config.base import ConfigModel

Normalisation = Literal["none", "group", "running"]


class RewardBase(ConfigModel):
    weight: float = 1.0
    """Factor of this part in the total."""
    name: str | None = None
    """Name of this part in metrics and samples; the type if not given."""
    shaping: bool = False
    """Whether it only shapes how a response looks and says nothing of success: algorithm.outcome_gate leaves such parts
    out of a group in which every response failed."""

    normalise: Normalisation = "none"
    """How its values are brought to a scale before the weight in training: within the responses to one prompt, or by
    the mean and deviation of all values so far."""

    @property
    def part_name(self) -> str:
        return str(self.name or self.type)  # type: ignore[attr-defined]

    @property
    def inner(self) -> tuple[RewardBase, ...]:
        """The rewards that this one is made of."""
        return ()

    @property
    def judges_answer(self) -> bool:
        """Whether a value of 1 can mean that the answer is right: not for what looks at the form alone, nor for a
        learned score, on whose scale no value means that."""
        return not self.inner or any(reward.judges_answer for reward in self.inner)

    @property
    def has_open_scale(self) -> bool:
        """Whether its values are a learned score."""
        return any(reward.has_open_scale for reward in self.inner)
