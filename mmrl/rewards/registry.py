"""From the `type` of a config to the class that scores."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from mmrl.config.reward import RewardBase
from mmrl.rewards.base import Reward
from mmrl.rewards.model.service import Service

REWARDS = {
    "exact": "answers.exact.ExactReward",
    "choice": "answers.choice.ChoiceReward",
    "number": "answers.number.NumberReward",
    "math": "answers.math.reward.MathReward",
    "count": "vision.count.CountReward",
    "ocr": "vision.ocr.OcrReward",
    "iou": "vision.iou.IouReward",
    "point": "vision.point.PointReward",
    "caption": "vision.caption.CaptionReward",
    "render": "vision.render.RenderReward",
    "format": "form.format.FormatReward",
    "tags": "form.tags.TagsReward",
    "language": "form.language.LanguageReward",
    "repetition": "form.repetition.RepetitionReward",
    "length": "form.length.LengthReward",
    "overlong": "form.overlong.OverlongReward",
    "keyword": "form.keyword.KeywordReward",
    "code": "code.reward.CodeReward",
    "model": "model.model.ModelReward",
    "judge": "model.judge.JudgeReward",
    "remote": "model.remote.RemoteReward",
    "gate": "combine.gate.GateReward",
    "min": "combine.minimum.MinReward",
    "product": "combine.product.ProductReward",
    "veto": "combine.veto.VetoReward",
    "function": "function.function.FunctionReward",
}
"""Where in this package the class of each type is. It is imported when first used: a process loads what it runs."""


def reward_class(name: str) -> type[Reward]:
    """The class of a reward, by the `type` of its config."""
    module, _, class_name = REWARDS[name].rpartition(".")
    found: type[Reward] = getattr(import_module(f"mmrl.rewards.{module}"), class_name)
    return found


def build_reward(config: RewardBase) -> Reward:
    """The reward that a config describes. Raises ConfigError where a user's function does not load."""
    if config.inner:
        return combine(config, build_reward)
    return _class_of(config)(config)  # type: ignore[call-arg]


def combine(config: RewardBase, build: Callable[[RewardBase], Reward]) -> Reward:
    """The combination that a config describes, its inner rewards made by `build`."""
    return _class_of(config)(config, build)  # type: ignore[call-arg]


def is_isolated(config: RewardBase) -> bool:
    """Whether a reward, or one that it is made of, may hang or crash, and so runs in a process of its own."""
    return _class_of(config).isolated or any(map(is_isolated, config.inner))


def has_service(config: RewardBase) -> bool:
    """Whether a reward, or one that it is made of, is scored by a server or a model elsewhere."""
    return issubclass(_class_of(config), Service) or any(map(has_service, config.inner))


def deadline_s(config: RewardBase) -> float:
    """Seconds that one response may take: the reward's own timeout, or those of the rewards that it is made of."""
    own: float = getattr(config, "timeout_s", 0.0)
    return own + sum(map(deadline_s, config.inner))


def preload(config: RewardBase) -> None:
    """Import what a reward, and those that it is made of, need to score."""
    _class_of(config).preload()
    for inner in config.inner:
        preload(inner)


def _class_of(config: RewardBase) -> type[Reward]:
    return reward_class(str(config.type))  # type: ignore[attr-defined]
