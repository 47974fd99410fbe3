"""From the `type` of a config to the class that scores."""

from __future__ import annotations

from collections.abc import Callable

from mmrl.config.reward import RewardBase, RewardConfig
from mmrl.rewards.base import Reward
from mmrl.rewards.caption import CaptionReward
from mmrl.rewards.choice import ChoiceReward
from mmrl.rewards.code import CodeReward
from mmrl.rewards.count import CountReward
from mmrl.rewards.exact import ExactReward
from mmrl.rewards.format import FormatReward
from mmrl.rewards.function import FunctionReward
from mmrl.rewards.gate import GateReward
from mmrl.rewards.iou import IouReward
from mmrl.rewards.judge import JudgeReward
from mmrl.rewards.keyword import KeywordReward
from mmrl.rewards.language import LanguageReward
from mmrl.rewards.length import LengthReward
from mmrl.rewards.math import MathReward
from mmrl.rewards.minimum import MinReward
from mmrl.rewards.model import ModelReward
from mmrl.rewards.number import NumberReward
from mmrl.rewards.ocr import OcrReward
from mmrl.rewards.overlong import OverlongReward
from mmrl.rewards.point import PointReward
from mmrl.rewards.product import ProductReward
from mmrl.rewards.remote import RemoteReward
from mmrl.rewards.render import RenderReward
from mmrl.rewards.repetition import RepetitionReward
from mmrl.rewards.service import Service
from mmrl.rewards.tags import TagsReward
from mmrl.rewards.veto import VetoReward

REWARDS: dict[str, type[Reward]] = {
    "exact": ExactReward,
    "choice": ChoiceReward,
    "math": MathReward,
    "format": FormatReward,
    "length": LengthReward,
    "keyword": KeywordReward,
    "overlong": OverlongReward,
    "tags": TagsReward,
    "repetition": RepetitionReward,
    "language": LanguageReward,
    "number": NumberReward,
    "count": CountReward,
    "ocr": OcrReward,
    "iou": IouReward,
    "point": PointReward,
    "caption": CaptionReward,
    "render": RenderReward,
    "code": CodeReward,
    "model": ModelReward,
    "judge": JudgeReward,
    "remote": RemoteReward,
    "gate": GateReward,
    "min": MinReward,
    "product": ProductReward,
    "veto": VetoReward,
    "function": FunctionReward,
}


def build_reward(config: RewardConfig) -> Reward:
    """The reward that a config describes. Raises ConfigError where a user's function does not load."""
    return REWARDS[config.type](config)  # type: ignore[call-arg]


def combine(config: RewardBase, build: Callable[[RewardBase], Reward]) -> Reward:
    """The combination that a config describes, its inner rewards made by `build`."""
    return REWARDS[_type_of(config)](config, build)  # type: ignore[call-arg]


def is_isolated(config: RewardBase) -> bool:
    """Whether a reward, or one that it is made of, may hang or crash, and so runs in a process of its own."""
    return REWARDS[_type_of(config)].isolated or any(map(is_isolated, config.inner))


def has_service(config: RewardBase) -> bool:
    """Whether a reward, or one that it is made of, is scored by a server or a model elsewhere."""
    return issubclass(REWARDS[_type_of(config)], Service) or any(map(has_service, config.inner))


def deadline_s(config: RewardBase) -> float:
    """Seconds that one response may take: the reward's own timeout, or those of the rewards that it is made of."""
    own: float = getattr(config, "timeout_s", 0.0)
    return own + sum(map(deadline_s, config.inner))


def preload(config: RewardBase) -> None:
    """Import what a reward, and those that it is made of, need to score."""
    REWARDS[_type_of(config)].preload()
    for inner in config.inner:
        preload(inner)


def _type_of(config: RewardBase) -> str:
    return str(config.type)  # type: ignore[attr-defined]
