"""Stages of the user's own: a class named in the config, called with what the stage before it gave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from mmrl.cluster.base import Executor, WorkerContext
from mmrl.cluster.group import WorkerGroup
from mmrl.config.run import StageConfig
from mmrl.errors import RunFailedError
from mmrl.trainer.state import Stateful, stateful
from mmrl.types import RolloutGroup, ScoredGroup
from mmrl.user_stage import (
    Stage,
    StageContext,
    build_stage,
    check_arguments,
    load_stage_class,
    run_stage,
    worker_class_of,
)

__all__ = ["StageContext", "UserStages"]

Data = TypeVar("Data")


class UserStages:
    """The user's stages by the stage that they follow, in the order of the config.

    A stage is called as `stage(data, context)` and returns data of the same kind: after `rollout` a list of
    `RolloutGroup`, after `reward` and `filter` a list of `ScoredGroup`, later an `UpdateBatch`. One that remembers
    something gives it in `state_dict` and takes it in `load_state_dict`: checkpoints then hold it.

    A stage with a `pool` is a worker group there, and its `__call__` runs as its own `@dispatch` says, on rank 0 where
    it has none. Without an executor such a stage is only checked, and cannot be called.
    """

    def __init__(self, configs: Sequence[StageConfig], *, executor: Executor | None = None) -> None:
        self._stages: dict[str, list[_PlacedStage]] = {}
        for place, config in enumerate(configs):
            self._stages.setdefault(config.after, []).append(_place(config, place, executor))

    def state_dict(self) -> dict[str, Any]:
        """Stage, as `after/place/name` -> the state of each that has one."""
        return {name: stage.state_dict() for name, stage in self._remembering().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """A stage that is new since the state was taken begins anew."""
        for name, stage in self._remembering().items():
            if name in state:
                stage.load_state_dict(state[name])

    def _remembering(self) -> dict[str, Stateful]:
        return stateful(
            {
                f"{after}/{place}/{stage.config.name}": stage.state
                for after, stages in self._stages.items()
                for place, stage in enumerate(stages)
            }
        )

    def __call__(self, after: str, data: Data, context: StageContext) -> Data:
        for stage in self._stages.get(after, []):
            name, result = stage.config.name, stage.run(data, context)
            if type(result) is not type(data):
                raise RunFailedError(
                    f"stage {name!r} (after {after}) returned {type(result).__name__} at step {context.step}; "
                    f"it must return what it was given, a {type(data).__name__}"
                )
            fault = _fault(result, after)
            if fault is not None:
                raise RunFailedError(f"stage {name!r} (after {after}) returned {fault} at step {context.step}")
            data = result
        return data


class _PlacedStage(Protocol):
    """A stage where it runs. state: what has its state_dict, if anything has."""

    config: StageConfig

    @property
    def state(self) -> object: ...

    def run(self, data: Any, context: StageContext) -> Any: ...


class _StageHere:
    """In the process of the trainer."""

    def __init__(self, config: StageConfig, stage: Stage) -> None:
        self.config = config
        self.state: object = stage
        self._stage = stage

    def run(self, data: Any, context: StageContext) -> Any:
        return run_stage(self._stage, self.config, data, context)


class _StageInPool:
    """On the workers of a pool. group: None where the stage is checked only."""

    def __init__(self, config: StageConfig, stage_class: type, group: WorkerGroup | None) -> None:
        self.config = config
        self._group = group
        self.state: object = _StateInPool(group) if group is not None and issubclass(stage_class, Stateful) else None

    def run(self, data: Any, context: StageContext) -> Any:
        assert self._group is not None, "a stage of a pool runs where there is an executor"
        answer = self._group(data, context)
        context.metrics.update(answer.metrics)
        return answer.result


class _StateInPool:
    """The state of a stage on several workers: a list with that of each."""

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    def state_dict(self) -> dict[str, Any]:
        return {"workers": self._group.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._group.load_state_dict(state["workers"])


def _place(config: StageConfig, place: int, executor: Executor | None) -> _PlacedStage:
    stage_class = load_stage_class(config)
    if config.pool is None:
        return _StageHere(config, build_stage(config, stage_class, WorkerContext("main")))
    check_arguments(config, stage_class)
    if executor is None:
        return _StageInPool(config, stage_class, None)
    group = executor.create(f"stage-{place}-{config.name}", worker_class_of(stage_class), config, pool=config.pool)
    return _StageInPool(config, stage_class, group)


def _fault(data: Any, after: str) -> str | None:
    """What is wrong with what a stage returned, or None."""
    elements: dict[str, type[Any]] = {"rollout": RolloutGroup, "reward": ScoredGroup, "filter": ScoredGroup}
    element = elements.get(after)
    if element is None:
        return None
    for item in data:
        if not isinstance(item, element):
            return f"a list with a {type(item).__name__}; each element must be a {element.__name__}"
        if after == "filter" and any(reward.total is None for reward in item.rewards):
            return "a response without a reward; the filter is over by then, so let the stage follow `reward`"
    return None
