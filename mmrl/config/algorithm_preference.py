"""Config of the algorithms that learn from preferences among the responses that they sample: online_dpo, sppo."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mmrl.config.algorithm_base import LossAggregation, PolicyGradientConfig
from mmrl.config.unread import UnreadError


class OnlineDpoConfig(PolicyGradientConfig):
    """DPO on pairs that the policy samples and rewards (or a judge) rank (arXiv 2402.04792)."""

    has_advantages: ClassVar[bool] = False

    type: Literal["online_dpo"] = "online_dpo"
    """Which algorithm this is."""
    group_size: int = Field(2, ge=1)
    """Responses sampled for each prompt; the best and the worst of them are the pair."""
    beta: float = Field(0.1, gt=0)
    """How strongly the policy is held to the reference: a reward is beta times the log ratio to it."""
    loss: Literal["dpo", "ipo"] = "dpo"
    """What is made of a pair: DPO's log-sigmoid or IPO's squared distance."""
    loss_aggregation: LossAggregation = "sequence_mean_token_sum"
    """A response's tokens are summed, and pairs averaged; no other way of adding up is known."""
    drop_groups_without_spread: bool = True
    """Leave groups whose responses all score the same out of the batch: they have no better and no worse one."""

    @property
    def uses_reference(self) -> bool:
        """Always: the loss is made of ratios to it."""
        return True

    @model_validator(mode="after")
    def _has_no_parts_of_a_policy_gradient(self) -> OnlineDpoConfig:
        settings = {
            "kl": "holds the policy to the reference by beta",
            "advantage": "learns from pairs and has no advantages",
            "policy_loss": "learns from pairs and has no loss of a token",
            "entropy_coef": "has no entropy bonus",
            "entropy_target": "has no entropy bonus",
            "entropy_top_share": "learns from whole responses",
            "correction": "learns from pairs, whoever sampled them",
            "loss_aggregation": "sums the tokens of a response",
        }
        for name, reason in settings.items():
            if name in self.changed and not (name == "advantage" and self.advantage.type == self.type):
                raise UnreadError(f"{name} does not go with algorithm 'online_dpo', which {reason}; leave it out", name)
        if not self.drop_groups_without_spread:
            raise ValueError(
                "drop_groups_without_spread: false does not go with algorithm 'online_dpo', which needs a better and a "
                "worse response in every group; use true"
            )
        return self


class SppoConfig(PolicyGradientConfig):
    """Self-play preference optimisation (arXiv 2405.00675): each response towards how often it beats the others."""

    type: Literal["sppo"] = "sppo"
    """Which algorithm this is."""
    group_size: int = Field(5, ge=1)
    """Responses sampled for each prompt; each is compared with all of them."""
    eta: float = Field(1000.0, gt=0)
    """Scale of the win rate in the log ratio that a response is drawn towards."""
    comparison: Literal["sign", "sigmoid"] = "sign"
    """How likely a response beats another, by their scores: sign is 1, one half or 0; sigmoid is that of their
    difference, for the scores of a Bradley-Terry reward model."""
    loss_aggregation: LossAggregation = "sequence_mean_token_sum"
    """How token losses are added up; the paper's is the mean over responses."""

    @model_validator(mode="after")
    def _responses_are_learned_whole(self) -> SppoConfig:
        if self.policy_loss is not None:
            return self
        for name in ("entropy_top_share", "correction"):
            if name in self.changed and not (name == "correction" and self.correction.weight is None):
                raise ValueError(
                    f"{name} does not go with the loss of algorithm 'sppo': it changes the advantages of single "
                    "tokens, which are the target of a whole response here; leave it out, or give a policy_loss"
                )
        if self.advantage.path is None and self._source().has_token_advantages:
            raise ValueError(
                f"advantage '{self.advantage.type}' does not go with the loss of algorithm 'sppo': they differ from "
                "token to token, and the loss draws whole responses; take another's, or give a policy_loss"
            )
        return self
