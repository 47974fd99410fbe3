"""Config of the rewards: one class each, told apart by `type`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mmrl.config.base import PathText
from mmrl.config.reward_answer import (
    ChoiceRewardConfig,
    CountRewardConfig,
    ExactRewardConfig,
    MathRewardConfig,
    NumberRewardConfig,
)
from mmrl.config.reward_base import RewardBase
from mmrl.config.reward_code import CodeRewardConfig
from mmrl.config.reward_form import (
    FormatRewardConfig,
    KeywordRewardConfig,
    LanguageRewardConfig,
    LengthRewardConfig,
    OverlongRewardConfig,
    RepetitionRewardConfig,
    TagsRewardConfig,
)
from mmrl.config.reward_http import JudgeRewardConfig, RemoteRewardConfig
from mmrl.config.reward_model import ModelRewardConfig
from mmrl.config.reward_vision import (
    CaptionRewardConfig,
    IouRewardConfig,
    OcrRewardConfig,
    PointRewardConfig,
    RenderRewardConfig,
)


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
    batch: int | None = Field(None, ge=1)
    """Most responses given to one call; the function then takes lists and returns one score for each. If not given, it
    is called for each response."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds for one response; then it counts as failed. A batch has as many times that as it has responses."""


class CombinedRewardConfig(RewardBase):
    """What the configs of rewards that are made of others share."""

    @model_validator(mode="after")
    def _inner_names_differ(self) -> CombinedRewardConfig:
        for inner in self.inner:
            if inner.normalise != "none":
                raise ValueError(
                    f"'{inner.part_name}' in it sees one response at a time and cannot be normalised; set normalise on "
                    "the whole"
                )
        names = [inner.part_name for inner in self.inner]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two rewards in it are named {twice[0]!r}; give one of them another `name`")
        return self


class GateRewardConfig(CombinedRewardConfig):
    """The reward where a condition holds, else a fixed value, as in 'the format must hold first'."""

    type: Literal["gate"] = "gate"
    """Which reward function this is."""
    condition: RewardConfig
    """The reward that decides."""
    at_least: float = 1.0
    """The condition holds where its value is at least this."""
    reward: RewardConfig
    """The reward that is paid where the condition holds; it is not computed elsewhere."""
    otherwise: float = 0.0
    """What is paid elsewhere."""

    @property
    def inner(self) -> tuple[RewardBase, ...]:
        return self.condition, self.reward


class MinRewardConfig(CombinedRewardConfig):
    """The smallest of several rewards, each times its weight: good only where all are."""

    type: Literal["min"] = "min"
    """Which reward function this is."""
    rewards: tuple[RewardConfig, ...] = Field(..., min_length=2)
    """The rewards that are compared."""

    @property
    def inner(self) -> tuple[RewardBase, ...]:
        return self.rewards


class ProductRewardConfig(CombinedRewardConfig):
    """The product of several rewards, each times its weight."""

    type: Literal["product"] = "product"
    """Which reward function this is."""
    rewards: tuple[RewardConfig, ...] = Field(..., min_length=2)
    """The rewards that are multiplied."""

    @property
    def inner(self) -> tuple[RewardBase, ...]:
        return self.rewards


class VetoRewardConfig(CombinedRewardConfig):
    """A filter over the whole total: 1 where a reward is high enough, else 0 and the response's total is fixed."""

    type: Literal["veto"] = "veto"
    """Which reward function this is."""
    reward: RewardConfig
    """The reward that is asked, such as keyword or a function of your own."""
    at_least: float = 0.0
    """A response whose value is below this is vetoed."""
    total: float = 0.0
    """The total of a vetoed response, whatever the other rewards say."""
    weight: float = 0.0
    """Factor of this part in the total of responses that pass."""

    @property
    def inner(self) -> tuple[RewardBase, ...]:
        return (self.reward,)


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
    | CaptionRewardConfig
    | RenderRewardConfig
    | CodeRewardConfig
    | ModelRewardConfig
    | JudgeRewardConfig
    | RemoteRewardConfig
    | GateRewardConfig
    | MinRewardConfig
    | ProductRewardConfig
    | VetoRewardConfig
    | FunctionRewardConfig,
    Field(discriminator="type"),
]

for _combination in (GateRewardConfig, MinRewardConfig, ProductRewardConfig, VetoRewardConfig):
    _combination.model_rebuild()

__all__ = [
    "CaptionRewardConfig",
    "ChoiceRewardConfig",
    "CodeRewardConfig",
    "CountRewardConfig",
    "ExactRewardConfig",
    "FormatRewardConfig",
    "FunctionRewardConfig",
    "GateRewardConfig",
    "IouRewardConfig",
    "JudgeRewardConfig",
    "KeywordRewardConfig",
    "LanguageRewardConfig",
    "LengthRewardConfig",
    "MathRewardConfig",
    "MinRewardConfig",
    "ModelRewardConfig",
    "NumberRewardConfig",
    "OcrRewardConfig",
    "OverlongRewardConfig",
    "PointRewardConfig",
    "ProductRewardConfig",
    "RemoteRewardConfig",
    "RenderRewardConfig",
    "RepetitionRewardConfig",
    "RewardBase",
    "RewardConfig",
    "TagsRewardConfig",
    "VetoRewardConfig",
]
