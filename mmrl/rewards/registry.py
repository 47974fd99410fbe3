"""From the `type` of a config to the class that scores."""

from __future__ import annotations

from mmrl.config.reward import RewardConfig
from mmrl.rewards.base import Reward
from mmrl.rewards.choice import ChoiceReward
from mmrl.rewards.count import CountReward
from mmrl.rewards.exact import ExactReward
from mmrl.rewards.format import FormatReward
from mmrl.rewards.function import FunctionReward
from mmrl.rewards.iou import IouReward
from mmrl.rewards.keyword import KeywordReward
from mmrl.rewards.language import LanguageReward
from mmrl.rewards.length import LengthReward
from mmrl.rewards.math import MathReward
from mmrl.rewards.number import NumberReward
from mmrl.rewards.ocr import OcrReward
from mmrl.rewards.overlong import OverlongReward
from mmrl.rewards.point import PointReward
from mmrl.rewards.repetition import RepetitionReward
from mmrl.rewards.tags import TagsReward

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
    "function": FunctionReward,
}


def build_reward(config: RewardConfig) -> Reward:
    """The reward that a config describes. Raises ConfigError where a user's function does not load."""
    return REWARDS[config.type](config)  # type: ignore[call-arg]
