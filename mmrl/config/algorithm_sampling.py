"""Config of the algorithms that ask more of sampling or of the rewards: dapo, remax, gdpo."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mmrl.config.algorithm_base import ClippedPolicyConfig, LossAggregation


class DapoConfig(ClippedPolicyConfig):
    """Decoupled clip and dynamic sampling policy optimisation (arXiv 2503.14476): GRPO with four changes."""

    type: Literal["dapo"] = "dapo"
    """Which algorithm this is."""
    group_size: int = Field(16, ge=1)
    """Responses sampled for each prompt."""
    clip_high: float = Field(0.28, gt=0)
    """The ratio is clipped above at 1 + clip_high; larger than clip_low is 'clip-higher'."""
    loss_aggregation: LossAggregation = "token_mean"
    """How token losses are added up; the paper's is the mean over tokens."""
    drop_groups_without_spread: bool = True
    """Leave groups whose responses all score the same out of the batch and its counts."""
    sampling_rounds: int = Field(10, ge=1)
    """Most rounds of sampling in a step: the first samples prompts_per_step prompts, each further one as many as are
    still missing in place of dropped groups; 1 samples no more than the first."""
    overlong_buffer: float = Field(0.2, ge=0, le=1)
    """Share of rollout.max_response_tokens before the limit over which a penalty on length grows; 0 is no penalty. The
    paper's is 4096 of 20480 tokens."""
    overlong_penalty: float = Field(1.0, ge=0)
    """The penalty at the limit, taken from a response's score after groups without spread are dropped, and not from one
    that mask_truncated leaves out of the loss."""


class RemaxConfig(ClippedPolicyConfig):
    """ReMax (arXiv 2310.10505): each response against the greedy one to the same prompt."""

    min_group_size: ClassVar[int] = 1
    samples_greedy: ClassVar[bool] = True
    compares_responses: ClassVar[bool] = False

    type: Literal["remax"] = "remax"
    """Which algorithm this is."""
    group_size: int = Field(1, ge=1)
    """Responses sampled for each prompt, besides the greedy one, which is scored and not learned from."""
    loss_aggregation: LossAggregation = "sequence_mean_token_sum"
    """How token losses are added up; the paper's gradient is of a whole response, so its tokens are summed."""


class GdpoConfig(ClippedPolicyConfig):
    """Group reward-decoupled normalisation policy optimisation (arXiv 2601.05242): for several rewards."""

    type: Literal["gdpo"] = "gdpo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "sequence_mean_token_mean"
    """How token losses are added up; the paper's is GRPO's, the mean over sequences of token means."""

    @model_validator(mode="after")
    def _parts_have_no_total(self) -> GdpoConfig:
        if self.advantage_type != self.type:
            return self
        if self.kl.coef > 0 and self.kl.where == "reward":
            raise ValueError(
                "kl.where: reward does not go with algorithm 'gdpo', which normalises each reward by itself and has no "
                "total to take a penalty from; use kl.where: loss"
            )
        if self.drop_groups_without_spread:
            raise ValueError(
                "drop_groups_without_spread: true does not go with algorithm 'gdpo': responses with the same total may "
                "differ in every reward, and learning from that is what it is for; use false"
            )
        return self
