"""Stages of the user's own: a class named in the config, called with what the stage before it gave."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from mmrl.config import RunConfig
from mmrl.config.run import StageConfig
from mmrl.errors import ConfigError, MmrlError, NotFoundError, RunFailedError
from mmrl.trainer.state import Stateful, stateful
from mmrl.types import RolloutGroup, ScoredGroup

Data = TypeVar("Data")


@dataclass(frozen=True)
class StageContext:
    """What a stage may know and leave: the run's config, the step, and metrics that are logged with the step."""

    config: RunConfig
    step: int
    metrics: dict[str, float] = field(default_factory=dict)


class UserStages:
    """The user's stages by the stage that they follow, in the order of the config.

    A stage is called as `stage(data, context)` and returns data of the same kind: after `rollout` a list of
    `RolloutGroup`, after `reward` and `filter` a list of `ScoredGroup`, later an `UpdateBatch`. One that remembers
    something gives it in `state_dict` and takes it in `load_state_dict`: checkpoints then hold it.
    """

    def __init__(self, configs: Sequence[StageConfig]) -> None:
        self._stages: dict[str, list[tuple[str, Callable[[Any, StageContext], Any]]]] = {}
        for config in configs:
            self._stages.setdefault(config.after, []).append((config.name, _build(config)))

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
                f"{after}/{place}/{name}": stage
                for after, stages in self._stages.items()
                for place, (name, stage) in enumerate(stages)
            }
        )

    def __call__(self, after: str, data: Data, context: StageContext) -> Data:
        for name, stage in self._stages.get(after, []):
            try:
                result = stage(data, context)
            except MmrlError:
                raise
            except (Exception, SystemExit) as error:
                raise RunFailedError(
                    f"stage {name!r} (after {after}) raised {type(error).__name__} at step {context.step}: {error}"
                ) from error
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


def _build(config: StageConfig) -> Callable[[Any, StageContext], Any]:
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
    try:
        return cast(Callable[[Any, StageContext], Any], stage_class(**config.arguments))
    except TypeError as error:
        raise ConfigError(f"stages: {config.name} does not take these arguments: {error}") from error
