"""What the configs of the algorithms share: the parts that any of them is made of, and what does not go together."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from mmrl.config.advantage import AdvantageField, AdvantageSource
from mmrl.config.base import ConfigModel
from mmrl.config.correction import CorrectionConfig
from mmrl.config.policy_loss import LOSS_FIELDS, ClipFields, PolicyLossConfig
from mmrl.config.unread import UnreadError

KlEstimator = Literal["k1", "k2", "k3"]
LossAggregation = Literal["token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant"]
OutcomeGate = Literal["off", "shaping", "group"]


class KlConfig(ConfigModel):
    """The penalty that holds the policy near the reference model."""

    coef: float = Field(0.0, ge=0)
    """Weight of the penalty, or where it is steered the weight to begin with; 0 turns it off, and then no reference
    model is loaded."""
    estimator: KlEstimator = "k3"
    """k1 in the reward; k2 or k3 in the loss (k1 has zero expected gradient there)."""
    where: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken from each token's reward."""
    target: float | None = Field(None, gt=0)
    """KL per token (mean k3, `actor/kl_reference`) that the weight is steered towards; null keeps the weight fixed."""
    horizon: int = Field(10_000, ge=1)
    """Responses over which a steered weight changes by a factor of at most about e^0.2."""

    @model_validator(mode="after")
    def _steered_weights_have_a_start(self) -> KlConfig:
        if self.target is not None and self.coef == 0:
            raise ValueError(
                f"target {self.target:g} needs a coef above 0 to begin with, since a steered weight changes by factors "
                "and 0 stays 0; set coef, such as 0.05, or target: null"
            )
        if "horizon" in self.changed and self.target is None:
            raise UnreadError("horizon is of a weight that is steered; set target too, or leave it out", "horizon")
        return self


class EntropyTargetConfig(ConfigModel):
    """Steers the weight of the entropy bonus: up while the policy's entropy is below a target, down while above."""

    entropy: float = Field(..., gt=0)
    """The target: mean entropy of a sampled token, in nats."""
    step: float = Field(0.005, gt=0)
    """How much the weight is raised or lowered after each run step; it never falls below 0."""
    max_coef: float = Field(0.1, gt=0)
    """Largest weight."""


class PolicyGradientConfig(ConfigModel):
    """What the algorithms share that sample a group of responses for each prompt."""

    min_group_size: ClassVar[int] = 2
    """Fewest responses of a prompt that the algorithm can learn from."""
    needs_critic: ClassVar[bool] = False
    """Whether it learns values, by a critic."""
    critic_warmup_steps: ClassVar[int] = 0
    """Steps in which only the critic learns, where critic.warmup_steps says nothing."""
    has_advantages: ClassVar[bool] = True
    """Whether its advantages mean something to the loss of another algorithm."""
    samples_greedy: ClassVar[bool] = False
    """Whether it compares with the greedy response to the same prompt."""
    compares_responses: ClassVar[bool] = True
    """Whether its advantages compare the sampled responses of a prompt with each other."""
    has_token_advantages: ClassVar[bool] = False
    """Whether its advantages differ among the tokens of a response."""
    not_of_advantages: ClassVar[frozenset[str]] = frozenset()
    """Of its own settings those that its loss or its critic reads, and its advantages do not."""
    critic_reads: ClassVar[frozenset[str]] = frozenset()
    """Of the settings that its advantages read those that its critic reads too, whoever gives the advantages."""

    type: str
    """Which algorithm this is."""
    group_size: int = Field(8, ge=1)
    """Responses sampled for each prompt."""
    advantage: AdvantageField = AdvantageSource()
    """Whose advantages are taken: nothing for the algorithm's own, the type of another algorithm (a bare word will do),
    or a function of your own as {path, name}."""
    policy_loss: PolicyLossConfig | None = None
    """The loss of a token in place of the algorithm's own: clip, gspo, cispo, sapo or plain, with its settings."""
    loss_aggregation: LossAggregation
    """How token losses are added up."""
    kl: KlConfig = KlConfig()
    """Penalty towards the reference model."""
    entropy_coef: float = Field(0.0, ge=0)
    """Weight of an entropy bonus in the loss, or where it is steered the weight to begin with."""
    entropy_target: EntropyTargetConfig | None = None
    """Steers the weight of the entropy bonus; null keeps it fixed."""
    entropy_top_share: float | None = Field(None, gt=0, lt=1)
    """Only this share of a step's sampled tokens, those of the highest entropy, learn from their advantage; null is all
    of them."""
    correction: CorrectionConfig = CorrectionConfig()
    """Correction of the difference between the sampler's probabilities and the trainer's."""
    drop_groups_without_spread: bool = False
    """Leave groups whose responses all score the same out of the batch and its counts."""
    sampling_rounds: int = Field(1, ge=1)
    """Most rounds of sampling in a step: the first samples prompts_per_step prompts, each further one as many as are
    still missing in place of dropped groups; 1 learns from what the first leaves."""
    mask_truncated: bool = False
    """Leave responses that were cut at the limit out of the loss; their scores still count in their group."""
    outcome_gate: OutcomeGate | None = None
    """What is learned from a group in which every response failed: `shaping` leaves out the parts of its rewards that
    only shape (length, overlong, repetition, and any with shaping: true), `group` levels its scores, `off` takes them
    as they are. Null is `shaping` where the responses of a prompt are compared with each other, else `off`."""

    @property
    def uses_reference(self) -> bool:
        """Whether the model of the run's begin is asked too."""
        return self.kl.coef > 0

    @property
    def advantage_type(self) -> str | None:
        """The type of the algorithm whose advantages are taken; None for a function of the user's own."""
        return None if self.advantage.path is not None else self.advantage.type or self.type

    @property
    def compares(self) -> bool:
        """Whether the advantages that are taken compare the sampled responses of a prompt with each other; a function
        of the user's own does, unless it has the greedy response to compare with and no gate is asked for."""
        if self.advantage.path is not None:
            return not self.samples_greedy or self.outcome_gate in ("shaping", "group")
        return self._source().compares_responses

    @property
    def gate(self) -> OutcomeGate:
        """The outcome gate as it acts."""
        return self.outcome_gate or ("shaping" if self.compares else "off")

    @classmethod
    def advantage_settings(cls) -> frozenset[str]:
        """The settings of its own that its advantages read."""
        of_losses = {name for group in LOSS_FIELDS for name in group.model_fields}
        shared = PolicyGradientConfig.model_fields.keys() | of_losses
        return frozenset(cls.model_fields.keys() - shared - cls.not_of_advantages)

    def _source(self) -> PolicyGradientConfig:
        from mmrl.config.algorithm import advantage_config  # it imports this file

        return advantage_config(self)

    @model_validator(mode="after")
    def _dropping_has_something_to_compare(self) -> PolicyGradientConfig:
        if self.drop_groups_without_spread and self.group_size < 2 and self.min_group_size < 2:
            raise ValueError(
                f"drop_groups_without_spread: true compares the responses of a prompt, of which group_size gives "
                f"{self.group_size}; use false, or group_size >= 2"
            )
        if self.sampling_rounds > 1 and not self.drop_groups_without_spread:
            raise ValueError(
                f"sampling_rounds: {self.sampling_rounds} samples more prompts in place of dropped groups, so it needs "
                "drop_groups_without_spread: true; use that, or sampling_rounds: 1"
            )
        return self

    @model_validator(mode="after")
    def _masked_responses_have_no_penalty(self) -> PolicyGradientConfig:
        if self.mask_truncated and self.kl.coef > 0 and self.kl.where == "reward" and self.compares:
            raise ValueError(
                "mask_truncated: true does not go with kl.where: reward, since a response left out of the loss keeps "
                "its score in its group and has no log-probabilities to take its penalty from; use kl.where: loss, or "
                "mask_truncated: false"
            )
        return self

    @model_validator(mode="after")
    def _gate_has_something_to_compare(self) -> PolicyGradientConfig:
        if self.outcome_gate in {"shaping", "group"} and not self.compares:
            raise UnreadError(
                f"outcome_gate: {self.outcome_gate} acts where the responses of a prompt are compared with each other, "
                f"which the advantages of '{self.advantage_type or self.type}' do not; there it would only spare wrong "
                "responses what right ones are charged for their length. Leave it out",
                "outcome_gate",
            )
        return self

    @model_validator(mode="after")
    def _advantages_of_another_fit(self) -> PolicyGradientConfig:
        if self.advantage.path is not None and self.needs_critic:
            raise ValueError(
                f"advantage.path does not go with algorithm '{self.type}', whose critic would be trained in vain; use "
                "an algorithm without one, such as type: grpo"
            )
        read = self._source().advantage_settings() if self.advantage.path is None else frozenset()
        unread = sorted((self.advantage_settings() - self.critic_reads - read) & self.changed)
        if unread:
            whose = f"'{self.advantage.type}'" if self.advantage.path is None else "your function"
            raise UnreadError(
                f"{unread[0]} is of the advantages that algorithm '{self.type}' has of its own, and those of {whose} "
                "stand in their place and do not read it; leave it out",
                *unread,
            )
        return self

    @model_validator(mode="after")
    def _own_settings_of_the_loss_are_used(self) -> PolicyGradientConfig:
        if self.policy_loss is None:
            return self
        settings = {name for group in LOSS_FIELDS for name in group.model_fields}
        unused = sorted(settings & self.changed)
        if unused:
            raise UnreadError(
                f"{unused[0]} is of the loss that algorithm '{self.type}' has of its own, and policy_loss "
                f"'{self.policy_loss.type}' stands in its place; set it inside policy_loss if that knows it, or leave "
                "it out",
                *unused,
            )
        return self

    @model_validator(mode="after")
    def _steered_entropy_begins_in_its_range(self) -> PolicyGradientConfig:
        target = self.entropy_target
        if target is not None and self.entropy_coef > target.max_coef:
            raise ValueError(
                f"entropy_coef {self.entropy_coef:g} is above entropy_target.max_coef {target.max_coef:g}; lower the "
                "one or raise the other"
            )
        return self


class ClippedPolicyConfig(ClipFields, PolicyGradientConfig):
    """What the algorithms share that clip the ratio as PPO does (arXiv 1707.06347)."""
