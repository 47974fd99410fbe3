"""A stage of the user's own, where it runs: in the trainer's process, or on the workers of a pool. Imports no torch."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mmrl.cluster.base import WorkerContext
from mmrl.cluster.dispatch import Arguments, Dispatch, MethodMark, Plan, dispatch, marked_methods, named_dispatch
from mmrl.config import RunConfig
from mmrl.config.run import StageConfig
from mmrl.errors import ConfigError, MmrlError, NotFoundError, RunFailedError

Stage = Callable[[Any, "StageContext"], Any]

_WORKER = "worker"
"""The parameter of a stage's constructor that is given its WorkerContext, where it has one."""


@dataclass(frozen=True)
class StageContext:
    """What a stage may know and leave: the run's config, the step, and metrics that are logged with the step."""

    config: RunConfig
    step: int
    metrics: dict[str, float] = field(default_factory=dict)


def load_stage_class(config: StageConfig) -> type:
    """Raises NotFoundError without the file, ConfigError where it does not load or has no such class."""
    path = Path(config.path)
    if not path.is_file():
        raise NotFoundError(f"stages: {config.path} does not exist; give the Python file that holds {config.name!r}")
    spec = importlib.util.spec_from_file_location(f"mmrl_user_stage_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"stages: {path} cannot be loaded: {type(error).__name__}: {error}") from error
    stage_class = getattr(module, config.name, None)
    if not inspect.isclass(stage_class):
        classes = sorted(name for name, value in vars(module).items() if inspect.isclass(value))
        raise ConfigError(f"stages: {path} has no class {config.name!r}; it has {', '.join(classes) or 'no classes'}")
    return stage_class


def check_arguments(config: StageConfig, stage_class: type) -> None:
    """Raises ConfigError where the constructor does not take the arguments of the config."""
    try:
        inspect.signature(stage_class).bind(**_arguments(config, stage_class, WorkerContext("main")))
    except TypeError as error:
        raise ConfigError(f"stages: {config.name} does not take these arguments: {error}") from error


def build_stage(config: StageConfig, stage_class: type, worker: WorkerContext) -> Stage:
    """The stage, constructed with the arguments of the config. Raises ConfigError where it does not take them."""
    try:
        stage: Stage = stage_class(**_arguments(config, stage_class, worker))
    except TypeError as error:
        raise ConfigError(f"stages: {config.name} does not take these arguments: {error}") from error
    return stage


def run_stage(stage: Stage, config: StageConfig, data: Any, context: StageContext) -> Any:
    """Its result. Raises RunFailedError with the stage and the step where it raises what is no MmrlError."""
    try:
        return stage(data, context)
    except MmrlError:
        raise
    except (Exception, SystemExit) as error:
        raise RunFailedError(
            f"stage {config.name!r} (after {config.after}) raised {type(error).__name__} at step {context.step}: "
            f"{error}"
        ) from error


def _states_of_workers(num_workers: int, states: list[Any]) -> list[Arguments | None]:
    """Each worker its own state; the first one's to workers that there were not."""
    return [((states[rank] if rank < len(states) else states[0],), {}) for rank in range(num_workers)]


@dataclass(frozen=True)
class StageAnswer:
    """What one worker's stage returned, and the metrics that it left."""

    result: Any
    metrics: Mapping[str, float]


class StageWorker:
    """A user's stage as a worker. `worker_class_of` gives its `__call__` the dispatch of the stage's own."""

    def __init__(self, context: WorkerContext, config: StageConfig) -> None:
        self._config = config
        self._stage: Any = build_stage(config, load_stage_class(config), context)

    def run(self, data: Any, context: StageContext) -> StageAnswer:
        own = StageContext(context.config, context.step)
        return StageAnswer(run_stage(self._stage, self._config, data, own), own.metrics)

    @dispatch("broadcast")
    def state_dict(self) -> Any:
        return self._stage.state_dict()

    @dispatch(Dispatch(_states_of_workers, list))
    def load_state_dict(self, state: Any) -> None:
        self._stage.load_state_dict(state)


def worker_class_of(stage_class: type) -> type:
    """The worker class of a stage: it runs as the mark of the stage's `__call__` says, on rank 0 where it has none."""
    mark = marked_methods(stage_class).get("__call__")

    def call(self: StageWorker, data: Any, context: StageContext) -> StageAnswer:
        return self.run(data, context)

    call.__mmrl_dispatch__ = MethodMark(_AnswersOf() if mark is None else _AnswersOf(mark.dispatch))  # type: ignore
    return type("StageWorker", (StageWorker,), {"__call__": call})


@dataclass(frozen=True)
class _AnswersOf(Dispatch):
    """A dispatch of stages: results are joined as the stage's own says; metrics of workers that divided the data are
    added up, of workers that all had the same the first's are taken."""

    split: Callable[..., Sequence[Arguments | None]] = field(default=tuple, init=False, repr=False)
    join: Callable[[list[Any]], Any] = field(default=list, init=False, repr=False)
    inner: Dispatch = field(default_factory=lambda: named_dispatch("rank_zero"))

    def plan(self, num_workers: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Plan:
        plan = self.inner.plan(num_workers, args, kwargs)
        return Plan(plan.calls, partial(_join_answers, plan))


def _join_answers(plan: Plan, answers: list[StageAnswer]) -> StageAnswer:
    metrics: dict[str, float] = {}
    for answer in answers[:1] if _all_the_same(plan.calls) else answers:
        for name, value in answer.metrics.items():
            metrics[name] = metrics.get(name, 0.0) + value
    return StageAnswer(plan.join([answer.result for answer in answers]), metrics)


def _all_the_same(calls: list[Arguments | None]) -> bool:
    return all(call is calls[0] for call in calls if call is not None)


def _arguments(config: StageConfig, stage_class: type, worker: WorkerContext) -> dict[str, Any]:
    takes_worker = _WORKER in inspect.signature(stage_class).parameters and _WORKER not in config.arguments
    return {**config.arguments, **({_WORKER: worker} if takes_worker else {})}
