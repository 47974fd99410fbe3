"""Config of the algorithms: one class each, told apart by `type`. The defaults are those of the papers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mmrl.config.algorithm_base import (
    ClippedPolicyConfig,
    KlConfig,
    KlEstimator,
    LossAggregation,
    PolicyGradientConfig,
)


class GrpoConfig(ClippedPolicyConfig):
    """Group relative policy optimisation (arXiv 2402.03300)."""

    type: Literal["grpo"] = "grpo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "sequence_mean_token_mean"
    """How token losses are added up; the paper's is the mean over sequences of token means."""


class DrGrpoConfig(ClippedPolicyConfig):
    """GRPO without the length and difficulty bias (arXiv 2503.20783): no division by std or length."""

    type: Literal["dr_grpo"] = "dr_grpo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "constant"
    """How token losses are added up; the paper divides by a constant, the response limit."""


class RlooConfig(ClippedPolicyConfig):
    """REINFORCE with a leave-one-out baseline (arXiv 2402.14740): each response against the mean of the others."""

    type: Literal["rloo"] = "rloo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "sequence_mean_token_sum"
    """How token losses are added up; the paper takes a whole response as one action, so its tokens are summed."""


class GspoConfig(ClippedPolicyConfig):
    """Group sequence policy optimisation (arXiv 2507.18071): one ratio, and one clip, for a whole response."""

    type: Literal["gspo"] = "gspo"
    """Which algorithm this is."""
    clip_low: float = Field(3e-4, gt=0, lt=1)
    """The ratio of a response is clipped below at 1 - clip_low."""
    clip_high: float = Field(4e-4, gt=0)
    """The ratio of a response is clipped above at 1 + clip_high."""
    loss_aggregation: LossAggregation = "sequence_mean_token_mean"
    """How token losses are added up; the paper's is the mean over sequences."""


class CispoConfig(PolicyGradientConfig):
    """Clipped importance sampling policy optimisation (MiniMax-M1, arXiv 2506.13585): every token keeps a gradient."""

    type: Literal["cispo"] = "cispo"
    """Which algorithm this is."""
    cap: float = Field(5.0, ge=1)
    """Bound of the ratio itself (not of its distance from 1): a token with a larger ratio weighs this much."""
    loss_aggregation: LossAggregation = "token_mean"
    """How token losses are added up; the paper's is the mean over tokens."""


class SapoConfig(PolicyGradientConfig):
    """Soft adaptive policy optimisation (arXiv 2511.20347): a smooth gate in place of the clip."""

    type: Literal["sapo"] = "sapo"
    """Which algorithm this is."""
    temperature_positive: float = Field(1.0, gt=0)
    """Steepness of the gate where the advantage is positive; larger lets the ratio move less."""
    temperature_negative: float = Field(1.05, gt=0)
    """Steepness of the gate where the advantage is negative."""
    loss_aggregation: LossAggregation = "sequence_mean_token_mean"
    """How token losses are added up; the paper's is the mean over sequences of token means."""


class OpoConfig(ClippedPolicyConfig):
    """On-policy RL with the optimal reward baseline (arXiv 2505.23585): long responses weigh more in the baseline."""

    type: Literal["opo"] = "opo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "sequence_mean_token_sum"
    """How token losses are added up; the paper's gradient is of a whole response, so its tokens are summed."""


class GpgConfig(PolicyGradientConfig):
    """Group policy gradient (arXiv 2504.02546): plain REINFORCE, scaled up for groups that teach nothing."""

    type: Literal["gpg"] = "gpg"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "token_mean"
    """How token losses are added up; the paper's is the mean over tokens."""

    @model_validator(mode="after")
    def _scale_stands_for_dropping(self) -> GpgConfig:
        if self.drop_groups_without_spread:
            raise ValueError(
                "drop_groups_without_spread: true does not go with algorithm 'gpg', whose advantages are already "
                "scaled up for groups without spread; use false, or another algorithm such as 'dr_grpo'"
            )
        return self


class PassAtKConfig(ClippedPolicyConfig):
    """Training for the best of a group (arXiv 2503.19595): only the best response learns, by its lead."""

    type: Literal["pass_at_k"] = "pass_at_k"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "sequence_mean_token_sum"
    """How token losses are added up; the paper's gradient is of a whole response, so its tokens are summed."""


class ReinforcePlusPlusBaselineConfig(ClippedPolicyConfig):
    """REINFORCE++ with a group baseline (arXiv 2501.03262): centred in the group, normalised over the batch."""

    type: Literal["reinforce_plus_plus_baseline"] = "reinforce_plus_plus_baseline"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "token_mean"
    """How token losses are added up; the paper's is the mean over tokens."""


AlgorithmConfig = Annotated[
    CispoConfig
    | DrGrpoConfig
    | GpgConfig
    | GrpoConfig
    | GspoConfig
    | OpoConfig
    | PassAtKConfig
    | ReinforcePlusPlusBaselineConfig
    | RlooConfig
    | SapoConfig,
    Field(discriminator="type"),
]

__all__ = [
    "AlgorithmConfig",
    "CispoConfig",
    "ClippedPolicyConfig",
    "DrGrpoConfig",
    "GpgConfig",
    "GrpoConfig",
    "GspoConfig",
    "KlConfig",
    "KlEstimator",
    "LossAggregation",
    "OpoConfig",
    "PassAtKConfig",
    "PolicyGradientConfig",
    "ReinforcePlusPlusBaselineConfig",
    "RlooConfig",
    "SapoConfig",
]
