"""Config of the algorithms whose advantages differ from token to token: ppo, vapo, reinforce_plus_plus."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from mmrl.config.algorithm_base import ClippedPolicyConfig, KlConfig, LossAggregation
from mmrl.config.unread import UnreadError

KL_IN_REWARD = KlConfig(estimator="k1", where="reward")


class TokenPolicyConfig(ClippedPolicyConfig):
    """What the algorithms share that judge each token by what comes after it."""

    min_group_size: ClassVar[int] = 1
    compares_responses: ClassVar[bool] = False
    has_token_advantages: ClassVar[bool] = True

    group_size: int = Field(1, ge=1)
    """Responses sampled for each prompt; they are not compared with each other."""
    kl: KlConfig = KL_IN_REWARD
    """Penalty towards the reference model, taken from each token's reward unless `where` says otherwise."""
    gamma: float = Field(1.0, gt=0, le=1)
    """How much of the next token's return counts for a token; 1 is all of it."""
    loss_aggregation: LossAggregation = "token_mean"
    """How token losses are added up; the mean over tokens."""

    @model_validator(mode="before")
    @classmethod
    def _kl_begins_with_its_defaults(cls, data: Any) -> Any:
        """What a file leaves out of `kl` is as in this class's default, not as in one for group algorithms."""
        given = data.get("kl") if isinstance(data, dict) else None
        if not isinstance(given, dict):
            return data
        default: KlConfig = cls.model_fields["kl"].default
        in_loss = given.get("where") == "loss"
        kl = {"coef": default.coef, "where": "reward", "estimator": "k3" if in_loss else "k1"}
        return {**data, "kl": {**kl, **given}}


class PpoConfig(TokenPolicyConfig):
    """Proximal policy optimisation (arXiv 1707.06347) with a critic, and the dual clip of arXiv 1912.09729."""

    needs_critic: ClassVar[bool] = True
    critic_reads: ClassVar[frozenset[str]] = frozenset({"gamma", "lam"})

    type: Literal["ppo"] = "ppo"
    """Which algorithm this is."""
    lam: float = Field(0.95, ge=0, le=1)
    """GAE's lambda (arXiv 1506.02438): 0 trusts the critic's next value alone, 1 what came of the response alone."""
    whiten: bool = True
    """Give the advantages of a step's tokens mean 0 and variance 1."""
    dual_clip: float | None = Field(3.0, gt=1)
    """Bound of the loss on negative advantages, as a multiple of the advantage; null turns it off."""


class VapoConfig(TokenPolicyConfig):
    """Value-augmented PPO (arXiv 2504.05118), for long reasoning: a critic that learns first, from whole responses."""

    needs_critic: ClassVar[bool] = True
    critic_warmup_steps: ClassVar[int] = 50
    not_of_advantages: ClassVar[frozenset[str]] = frozenset({"critic_lam", "imitation_coef"})
    critic_reads: ClassVar[frozenset[str]] = frozenset({"gamma"})

    type: Literal["vapo"] = "vapo"
    """Which algorithm this is."""
    group_size: int = Field(16, ge=1)
    """Responses sampled for each prompt."""
    clip_high: float = Field(0.28, gt=0)
    """The ratio is clipped above at 1 + clip_high; larger than clip_low is 'clip-higher'."""
    critic_lam: float = Field(1.0, ge=0, le=1)
    """GAE's lambda in the returns that the critic learns; at 1, and gamma 1, these are what came of the response."""
    length_alpha: float | None = Field(0.05, gt=0)
    """The policy's lambda is 1 - 1 / (length_alpha * length), within [0, 1]; null takes policy_lam for all lengths."""
    policy_lam: float = Field(0.95, ge=0, le=1)
    """The policy's lambda where length_alpha is null."""
    whiten: bool = True
    """Give the advantages of a step's tokens mean 0 and variance 1."""
    imitation_coef: float = Field(0.1, ge=0)
    """Weight of the negative log-likelihood of right responses, the mean over their tokens; 0 turns it off."""

    @model_validator(mode="after")
    def _one_lambda(self) -> VapoConfig:
        if self.length_alpha is not None and "policy_lam" in self.changed:
            raise UnreadError(
                f"policy_lam: {self.policy_lam:g} is for all lengths, and length_alpha {self.length_alpha:g} makes one "
                "of each; leave it out, or set length_alpha: null",
                "policy_lam",
            )
        return self


class ReinforcePlusPlusConfig(TokenPolicyConfig):
    """REINFORCE++ (arXiv 2501.03262): no critic and no group; each token's return, normalised over the batch."""

    type: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    """Which algorithm this is."""
    kl: KlConfig = KL_IN_REWARD.model_copy(update={"coef": 0.01})
    """Penalty towards the reference model, taken from each token's reward unless `where` says otherwise."""
