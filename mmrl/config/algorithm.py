"""Config of the algorithms: one class each, told apart by `type`. The defaults are those of the papers."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationError, model_validator

from mmrl.config.algorithm_base import (
    ClippedPolicyConfig,
    KlConfig,
    KlEstimator,
    LossAggregation,
    PolicyGradientConfig,
)
from mmrl.config.algorithm_preference import OnlineDpoConfig, SppoConfig
from mmrl.config.algorithm_sampling import DapoConfig, GdpoConfig, RemaxConfig
from mmrl.config.algorithm_token import PpoConfig, ReinforcePlusPlusConfig, TokenPolicyConfig, VapoConfig
from mmrl.config.policy_loss import CapFields, GateFields, SequenceClipFields
from mmrl.config.unread import UnreadError


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


class GspoConfig(SequenceClipFields, ClippedPolicyConfig):
    """Group sequence policy optimisation (arXiv 2507.18071): one ratio, and one clip, for a whole response."""

    type: Literal["gspo"] = "gspo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "sequence_mean_token_mean"
    """How token losses are added up; the paper's is the mean over sequences."""


class CispoConfig(CapFields, PolicyGradientConfig):
    """Clipped importance sampling policy optimisation (MiniMax-M1, arXiv 2506.13585): every token keeps a gradient."""

    type: Literal["cispo"] = "cispo"
    """Which algorithm this is."""
    loss_aggregation: LossAggregation = "token_mean"
    """How token losses are added up; the paper's is the mean over tokens."""


class SapoConfig(GateFields, PolicyGradientConfig):
    """Soft adaptive policy optimisation (arXiv 2511.20347): a smooth gate in place of the clip."""

    type: Literal["sapo"] = "sapo"
    """Which algorithm this is."""
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
        if self.drop_groups_without_spread and self.advantage_type == self.type:
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
    | DapoConfig
    | DrGrpoConfig
    | GdpoConfig
    | GpgConfig
    | GrpoConfig
    | GspoConfig
    | OnlineDpoConfig
    | OpoConfig
    | PassAtKConfig
    | PpoConfig
    | ReinforcePlusPlusBaselineConfig
    | ReinforcePlusPlusConfig
    | RemaxConfig
    | RlooConfig
    | SapoConfig
    | SppoConfig
    | VapoConfig,
    Field(discriminator="type"),
]


def algorithm_types() -> tuple[str, ...]:
    """The types of all algorithms."""
    return tuple(_classes())


def advantage_config(config: PolicyGradientConfig) -> PolicyGradientConfig:
    """The config of the algorithm whose advantages `config` takes: `config` itself, or that of another algorithm with
    the settings that both share and its own from `advantage.arguments`.

    Raises ValueError where there is no such algorithm, or where its settings and those of `config` do not go together.
    """
    source = config.advantage
    if source.type is None:
        return config
    if source.type not in algorithm_types():
        near = get_close_matches(source.type, algorithm_types(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"advantage.type: got '{source.type}'; allowed: {', '.join(sorted(algorithm_types()))}{hint}")
    other = _classes()[source.type]
    fault = _unlike(type(config), other, config)
    if fault is not None:
        raise ValueError(
            f"advantage '{source.type}' does not go with algorithm '{config.type}': {fault}; use type: {source.type}, "
            "with policy_loss and loss_aggregation for what was wanted of the other"
        )
    both = other.advantage_settings() & type(config).model_fields.keys()
    strange = sorted(source.arguments.keys() & other.model_fields.keys() - (other.advantage_settings() - both))
    if strange:
        whose = "the run's own" if strange[0] in type(config).model_fields else "read by no advantages"
        raise UnreadError(
            f"advantage.arguments: {strange[0]} is {whose}; arguments are settings that the advantages of "
            f"'{source.type}' have and algorithm '{config.type}' does not: "
            f"{', '.join(sorted(other.advantage_settings() - both)) or '(none)'}",
            *(f"advantage.arguments.{name}" for name in strange),
        )
    shared = {name: getattr(config, name) for name in _ESTIMATORS_READ | both}
    try:
        return other(**{**shared, **source.arguments})
    except ValidationError as error:
        faults = "; ".join(
            ": ".join([*(str(key) for key in details["loc"]), details["msg"].removeprefix("Value error, ")])
            for details in error.errors(include_url=False)
        )
        told = f"advantage '{source.type}' does not go with the other settings: {faults}"
        unread = [details.get("ctx", {}).get("error") for details in error.errors(include_url=False)]
        keys = [key for each in unread if isinstance(each, UnreadError) for key in each.keys]
        owned = [f"advantage.arguments.{key}" if key in source.arguments else key for key in keys]
        raise (UnreadError(told, *owned) if owned else ValueError(told)) from error


_ESTIMATORS_READ = frozenset(
    {"group_size", "kl", "drop_groups_without_spread", "sampling_rounds", "mask_truncated", "outcome_gate"}
)
"""The settings that all algorithms have and that matter to an estimator, or to what goes with it."""


def _unlike(
    host: type[PolicyGradientConfig], other: type[PolicyGradientConfig], config: PolicyGradientConfig
) -> str | None:
    """Why the advantages of `other` cannot be had, or are paid for in vain, in a run of `host`."""
    if not other.has_advantages and other is not host:
        return "it learns from pairs and has none to give"
    if other.needs_critic and not host.needs_critic:
        return "they come from a critic, which the algorithm does not have"
    if host.needs_critic and not other.needs_critic:
        return "its critic would be trained in vain, since they make no use of it"
    if other.samples_greedy and not host.samples_greedy:
        return "they compare with the greedy response, which the algorithm does not sample"
    if host.samples_greedy and not other.samples_greedy:
        return "its greedy responses would be sampled in vain, since they make no use of them"
    if config.group_size < other.min_group_size:
        return f"they need group_size >= {other.min_group_size} (got {config.group_size})"
    return None


def _classes() -> dict[str, type[PolicyGradientConfig]]:
    union, _ = get_args(AlgorithmConfig)
    return {member.model_fields["type"].default: member for member in get_args(union)}


__all__ = [
    "AlgorithmConfig",
    "CispoConfig",
    "ClippedPolicyConfig",
    "DapoConfig",
    "DrGrpoConfig",
    "GdpoConfig",
    "GpgConfig",
    "GrpoConfig",
    "GspoConfig",
    "KlConfig",
    "KlEstimator",
    "LossAggregation",
    "OnlineDpoConfig",
    "OpoConfig",
    "PassAtKConfig",
    "PolicyGradientConfig",
    "PpoConfig",
    "ReinforcePlusPlusBaselineConfig",
    "ReinforcePlusPlusConfig",
    "RemaxConfig",
    "RlooConfig",
    "SapoConfig",
    "SppoConfig",
    "TokenPolicyConfig",
    "VapoConfig",
    "advantage_config",
    "algorithm_types",
]
