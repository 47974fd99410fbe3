"""Config of the rewards that compare an answer with the reference."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from mmrl.config.reward_base import RewardBase


class ExactRewardConfig(RewardBase):
    """1 if the extracted answer equals the reference as text, else 0."""

    type: Literal["exact"] = "exact"
    """Which reward function this is."""
    ignore_case: bool = True
    """Compare without regard to case."""
    boxed: bool = True
    """Read the answer from the last \\boxed{...}; otherwise the whole response is the answer."""


class ChoiceRewardConfig(RewardBase):
    """1 if the chosen letter equals the reference letter, else 0."""

    type: Literal["choice"] = "choice"
    """Which reward function this is."""
    choices: str = "ABCDEFGHIJ"
    """The letters that may be chosen."""

    @field_validator("choices")
    @classmethod
    def _letters(cls, choices: str) -> str:
        if not re.fullmatch(r"[A-Za-z]+", choices):
            raise ValueError(f"choices must be letters written together, such as ABCD (got {choices!r})")
        return choices


class MathRewardConfig(RewardBase):
    """1 if math-verify finds the answer equal to the reference, else 0."""

    type: Literal["math"] = "math"
    """Which reward function this is."""
    timeout_s: float = Field(5.0, gt=0)
    """Seconds for the grading of one response. Two fifths are for reading the reference, which fails if that is too
    short, and two fifths for comparing the answer, which is wrong then."""


class NumberRewardConfig(RewardBase):
    """1 if the answer is the reference number within a tolerance, units converted, else 0."""

    type: Literal["number"] = "number"
    """Which reward function this is."""
    absolute: float = Field(0.0, ge=0)
    """Largest difference that is accepted, in the reference's unit."""
    relative: float = Field(1e-6, ge=0)
    """Largest difference that is accepted, as a share of the reference; the larger of both tolerances counts."""
    unit: str | None = None
    """The unit of references that name none, such as cm; answers are converted to it."""
    require_unit: bool = False
    """Score an answer without a unit 0 where the reference has one."""


class CountRewardConfig(RewardBase):
    """1 if the answer is the reference count, in digits or words, else 0."""

    type: Literal["count"] = "count"
    """Which reward function this is."""
    partial: bool = False
    """Pay a near miss 1 - |difference| / reference, if that is above 0."""
