"""The parts of a run's reward: which reward runs where, and what their outcomes add up to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mmrl.config.reward import FunctionRewardConfig, RewardConfig, VetoRewardConfig
from mmrl.config.reward_base import Normalisation
from mmrl.errors import ConfigError
from mmrl.rewards.base import Reward, RewardItem
from mmrl.rewards.combine.staged import StagedReward
from mmrl.rewards.function.function import UserFunction
from mmrl.rewards.function.loading import options_of
from mmrl.rewards.model.service import Service
from mmrl.rewards.outcome import Outcome
from mmrl.rewards.registry import build_reward, combine, deadline_s, has_service, is_isolated
from mmrl.rewards.runner.worker import RewardSource
from mmrl.types import RewardPart, RewardResult

if TYPE_CHECKING:
    from mmrl.rewards.runner.runner import RewardRunner

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Part:
    """One reward of the run: scored here by `local`, elsewhere by `service`, or in the pool from `source` under
    `deadline_s`.

    batch: responses in one job of the pool.
    veto_total: the total of a response that it scores 0; None for every reward but a veto.
    """

    name: str
    weight: float
    label: str
    local: Reward | None = None
    service: Service | None = None
    source: RewardSource | None = None
    deadline_s: float = 0.0
    batch: int = 1
    veto_total: float | None = None
    normalise: Normalisation = "none"


def part_of_config(config: RewardConfig, new_runner: Callable[[RewardConfig], RewardRunner]) -> Part:
    """new_runner: makes a runner of one reward, for those inside another one that asks a server or a model."""
    label = f"reward '{config.part_name}'"
    if isinstance(config, FunctionRewardConfig):
        label += f" ({config.path})"
    veto_total = config.total if isinstance(config, VetoRewardConfig) else None
    part = Part(config.part_name, config.weight, label, veto_total=veto_total, normalise=config.normalise)
    if has_service(config):
        return replace(part, service=_build_service(config, new_runner))
    if not is_isolated(config):
        return replace(part, local=build_reward(config))
    batch = config.batch if isinstance(config, FunctionRewardConfig) else None
    return replace(part, source=RewardSource(config=config), deadline_s=deadline_s(config), batch=batch or 1)


def _build_service(config: RewardConfig, new_runner: Callable[[RewardConfig], RewardRunner]) -> Service:
    if config.inner:
        return StagedReward(lambda build: combine(config, build), new_runner)
    service = build_reward(config)
    assert isinstance(service, Service)
    return service


def part_of_function(function: Callable[..., Any]) -> Part:
    """A function passed from Python, in the pool where it can be sent there."""
    options = options_of(function)
    own_name = str(getattr(function, "__name__", type(function).__name__))
    name = options.name or own_name.replace("<lambda>", "function")
    label = f"reward '{name}'"
    part = Part(name, options.weight, label, normalise=options.normalise)
    here = UserFunction(function, repr(name), batch=options.batch)
    if not options.isolated:
        return replace(part, local=here)
    try:
        source = RewardSource.from_function(function, repr(name), batch=options.batch)
    except Exception as error:
        _logger.warning(
            "%s cannot be sent to another process (%s: %s); it runs in this one, where nothing stops it if it hangs",
            label, type(error).__name__, error,
        )  # fmt: skip
        return replace(part, local=here)
    return replace(part, source=source, deadline_s=options.timeout_s, batch=options.batch or 1)


def check_names(parts: Sequence[Part]) -> None:
    """Raises ConfigError where two have one name."""
    names = [part.name for part in parts]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two rewards are named {twice[0]!r}; give one of them another `name`")


def result_of(parts: Sequence[Part], outcomes: Sequence[Outcome], item: RewardItem) -> RewardResult:
    """What the parts made of one response."""
    scored = tuple(_reward_part(part, outcome, item) for part, outcome in zip(parts, outcomes, strict=True))
    return RewardResult(total_of(parts, scored), scored)


def total_of(parts: Sequence[Part], scored: Sequence[RewardPart]) -> float | None:
    """The sum of what the parts are worth, or what a veto sets instead; None where a part that counts has no value."""
    counted = [
        (part, one) for part, one in zip(parts, scored, strict=True) if one.weight or part.veto_total is not None
    ]
    if any(one.value is None for _, one in counted):
        return None
    vetoes = [part.veto_total for part, one in counted if part.veto_total is not None and one.vetoes]
    return min(vetoes) if vetoes else sum((worth for _, one in counted if (worth := one.worth)), 0.0)


def _reward_part(part: Part, outcome: Outcome, item: RewardItem) -> RewardPart:
    where = f"{part.label} on sample {item.sample.id}, response {item.index}"
    return RewardPart(
        name=part.name,
        value=outcome.value,
        weight=part.weight,
        extracted=outcome.extracted,
        explanation=outcome.explanation,
        error=None if outcome.error is None else f"{where}: {outcome.error}",
        ms=outcome.ms,
        extras=outcome.extras,
        vetoes=None if part.veto_total is None else outcome.value == 0.0,
    )
