"""What the configs of the algorithms share."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel

KlEstimator = Literal["k1", "k2", "k3"]
LossAggregation = Literal["token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant"]


class KlConfig(ConfigModel):
    """The penalty that holds the policy near the reference model."""

    coef: float = Field(0.0, ge=0)
    """Weight of the penalty; 0 turns it off, and then no reference model is loaded."""
    estimator: KlEstimator = "k3"
    """k1 in the reward; k2 or k3 in the loss (k1 has zero expected gradient there)."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken from each token's reward."""


class PolicyGradientConfig(ConfigModel):
    """What the algorithms share that sample a group of responses for each prompt."""

    type: str
    """Which algorithm this is."""
    group_size: int = Field(8, ge=1)
    """Responses sampled for each prompt."""
    loss_aggregation: LossAggregation
    """How token losses are added up."""
    kl: KlConfig = KlConfig()
    """Penalty towards the reference model."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of an entropy bonus in the loss."""
    drop_groups_without_spread: bool = False
    """Leave groups whose responses all score the same out of the batch and its counts."""
    mask_truncated: bool = False
    """Leave responses that were cut at the limit out of the loss; their scores still count in their group."""

    @model_validator(mode="after")
    def _masked_responses_have_no_penalty(self) -> PolicyGradientConfig:
        if self.mask_truncated and self.kl.coef > 0 and self.kl.where == "reward":
            raise ValueError(
                "mask_truncated: true does not go with kl.where: reward, since a response left out of the loss has no "
                "log-probabilities to take its penalty from; use kl.where: loss, or mask_truncated: false"
            )
        return self


class ClippedPolicyConfig(PolicyGradientConfig):
    """What the algorithms share that clip the ratio as PPO does (arXiv 1707.06347)."""

    clip_low: float = Field(0.2, gt=0, lt=1)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio is clipped above at 1 + clip_high; larger than clip_low is 'clip-higher'."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound of the loss on negative advantages, as a multiple of the advantage; null turns it off."""
