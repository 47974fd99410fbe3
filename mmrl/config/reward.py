"""Config of the rewards: one class each, told apart by `type`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mmrl.config.base import PathText
from mmrl.config.reward_answer import (
    ChoiceRewardConfig,
    CountRewardConfig,
    ExactRewardConfig,
    MathRewardConfig,
    NumberRewardConfig,
)
from mmrl.config.reward_base import RewardBase
from mmrl.config.reward_form import (
    FormatRewardConfig,
    KeywordRewardConfig,
    LanguageRewardConfig,
    LengthRewardConfig,
    OverlongRewardConfig,
    RepetitionRewardConfig,
    TagsRewardConfig,
)
from mmrl.config.reward_vision import IouRewardConfig, OcrRewardConfig, PointRewardConfig


class FunctionRewardConfig(RewardBase):
    """A user's own function: a number for each response, in a process of its own and under a deadline."""

    type: Literal["function"] = "function"
    """Which reward function this is."""
    path: PathText
    """The Python file, or a module's dotted name."""
    name: str | None = "score"
    """The function in that file; also the name of the part."""
    arguments: dict[str, Any] = {}
    """Fixed keyword arguments that every call gets besides sample, response, answer, images, meta, num_tokens and
    finish_reason, of which it gets those that it names."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds for one response; then it counts as failed."""


RewardConfig = Annotated[
    ExactRewardConfig
    | ChoiceRewardConfig
    | MathRewardConfig
    | FormatRewardConfig
    | LengthRewardConfig
    | KeywordRewardConfig
    | OverlongRewardConfig
    | TagsRewardConfig
    | RepetitionRewardConfig
    | LanguageRewardConfig
    | NumberRewardConfig
    | CountRewardConfig
    | OcrRewardConfig
    | IouRewardConfig
    | PointRewardConfig
    | FunctionRewardConfig,
    Field(discriminator="type"),
]

__all__ = [
    "ChoiceRewardConfig",
    "CountRewardConfig",
    "ExactRewardConfig",
    "FormatRewardConfig",
    "FunctionRewardConfig",
    "IouRewardConfig",
    "KeywordRewardConfig",
    "LanguageRewardConfig",
    "LengthRewardConfig",
    "MathRewardConfig",
    "NumberRewardConfig",
    "OcrRewardConfig",
    "OverlongRewardConfig",
    "PointRewardConfig",
    "RepetitionRewardConfig",
    "RewardBase",
    "RewardConfig",
    "TagsRewardConfig",
]
