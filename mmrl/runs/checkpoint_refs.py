"""Which model a user means: a checkpoint of a run by its step, the best or the last one, or a model folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mmrl.checkpoint_files import MODEL_FOLDER
from mmrl.config.secrets import redact
from mmrl.errors import ConfigError, NotFoundError
from mmrl.runs import layout
from mmrl.runs.mirror import is_address, local_checkpoint
from mmrl.runs.reader import RunReader
from mmrl.runs.records import CheckpointRecord
from mmrl.runs.stored_run import StoredRun

Direction = Literal["max", "min"]

_AT = re.compile(r"(.+)@(best|last|\d+)")


@dataclass(frozen=True)
class ModelRef:
    """model: what `from_pretrained` loads. checkpoint, run_dir, step: where it comes from; None for another model."""

    model: Path
    checkpoint: Path | None = None
    run_dir: Path | None = None
    step: int | None = None

    @property
    def label(self) -> str:
        """A short name for people."""
        return f"{self.run_dir.name}@{self.step}" if self.run_dir is not None else self.model.name


def resolve_model(text: str, step: str | None = None) -> ModelRef:
    """What `text` names: RUN or RUN@STEP (a number, `best` or `last`), the folder of a checkpoint, or of a model.

    RUN may be the address of one in a store: its checkpoint is fetched.
    step: the same apart from the text; without either a run means its last checkpoint.
    Raises NotFoundError naming what there is, ConfigError for a step that is none or is named twice, RunFailedError for
    a store that does not answer.
    """
    path = Path(text).expanduser()
    match = None if path.exists() else _AT.fullmatch(text)
    if match is not None and step is not None:
        raise ConfigError(f"{text} names a step and --step {step} too; name one of them")
    if match is not None:
        text, step = match[1], match[2]
    if is_address(text) and (point := layout.parse_checkpoint_name(text.rstrip("/").rpartition("/")[2])) is not None:
        folder = local_checkpoint(text)
        return _of_checkpoint(folder, folder.parent.parent, point)
    if (ref := _folder(path)) is not None:
        if step is not None:
            raise ConfigError(f"--step {step}: {path} is one model already; name a run to choose among its steps")
        return ref
    return checkpoint_at(text if is_address(text) else layout.resolve_run(text), step or "last")


def checkpoints_of(run: str) -> list[tuple[CheckpointRecord, str]]:
    """The whole checkpoints of a run that a user named, by step, each with the path or address that commands take.

    Of a run in a store nothing is fetched. Raises NotFoundError for what is no run, RunFailedError for a store that
    does not answer.
    """
    if not is_address(run):
        return [(point, str(point.path)) for point in RunReader(layout.resolve_run(run)).checkpoints()]
    stored = StoredRun(run)
    stored.config()
    return [(point, stored.address_of(point)) for point in stored.checkpoints()]


def config_of_run(run: str) -> dict[str, Any]:
    """The resolved config of a run that a user named. Raises as `checkpoints_of`."""
    return StoredRun(run).config() if is_address(run) else RunReader(layout.resolve_run(run)).config()


def step_at(run: str, step: str) -> int:
    """The step of `checkpoint_at`, of a run that a user named; nothing is fetched."""
    points = [point for point, _ in checkpoints_of(run)]
    return _chosen(str(redact(run)), points, lambda: config_of_run(run), step).step


def checkpoint_at(run_dir: Path | str, step: str) -> ModelRef:
    """The checkpoint of a run: a step's number, `best` or `last`; of a run in a store it is fetched to this machine.

    Raises NotFoundError that names those there are, RunFailedError for a store that does not answer.
    """
    if is_address(run_dir):
        run = StoredRun(str(run_dir))
        found = _chosen(run.shown, run.checkpoints(), run.config, step)
        run.fetch_checkpoint(found)
        return _of_checkpoint(found.path, run.folder, found.step)
    reader = RunReader(Path(run_dir))
    found = _chosen(str(run_dir), reader.checkpoints(), reader.config, step)
    return _of_checkpoint(found.path, reader.run_dir, found.step)


def _chosen(
    run: str, checkpoints: Sequence[CheckpointRecord], config: Callable[[], dict[str, Any]], step: str
) -> CheckpointRecord:
    """run: as messages name it. config: reads its config, which only `best` takes."""
    if not checkpoints:
        raise NotFoundError(f"{run} has no whole checkpoint yet")
    if step == "last":
        return checkpoints[-1]
    if step == "best":
        return _best(run, checkpoints, config())
    if not step.isdecimal():
        raise ConfigError(f"--step: got {step!r}; allowed: a step's number, best, last")
    at = [point for point in checkpoints if point.step == int(step)]
    if not at:
        steps = ", ".join(str(point.step) for point in checkpoints)
        raise NotFoundError(f"{run} has no checkpoint of step {step}; it has those of {steps}")
    return at[0]


def _best(run: str, checkpoints: Sequence[CheckpointRecord], config: dict[str, Any]) -> CheckpointRecord:
    """The best by the metric of the run's config. Raises NotFoundError where no checkpoint has it."""
    metric, direction = best_rule(config)
    if metric is None:
        raise NotFoundError(f"{run}: its config names no metric that decides (checkpoint.best is null); name a step")
    having = [point for point in checkpoints if point.metrics.get(metric) is not None]
    if not having:
        raise NotFoundError(f"{run}: no checkpoint has {metric}, by which the best one is chosen; name a step")
    sign = 1 if direction == "max" else -1
    return max(having, key=lambda point: (sign * point.metrics[metric], -point.step))


def best_rule(config: dict[str, Any]) -> tuple[str | None, Direction]:
    """The metric that decides which checkpoint is best, and whether it is to be high or low, by a run's config."""
    settings = config.get("checkpoint") or {}
    return settings.get("best", "eval/reward"), "min" if settings.get("best_mode") == "min" else "max"


def _folder(path: Path) -> ModelRef | None:
    """What a path names by itself: a checkpoint's folder, the model in it, or a model's."""
    if not path.is_dir():
        return None
    folder = path.resolve()
    if folder.name == MODEL_FOLDER and layout.parse_checkpoint_name(folder.parent.name) is not None:
        folder = folder.parent
    step = layout.parse_checkpoint_name(folder.name)
    if step is not None and (folder / MODEL_FOLDER).is_dir():
        run_dir = folder.parent.parent
        return _of_checkpoint(folder, run_dir, step) if layout.is_run(run_dir) else ModelRef(folder / MODEL_FOLDER)
    return ModelRef(folder) if (folder / "config.json").is_file() else None


def _of_checkpoint(folder: Path, run_dir: Path, step: int) -> ModelRef:
    return ModelRef(folder / MODEL_FOLDER, folder, run_dir, step)
