"""Where an attempt goes on from: the newest whole checkpoint, one that was named, or nowhere."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmrl.checkpoint_files import MODEL_FOLDER, STATE_FILE
from mmrl.engines.shard_checkpoint import read_states
from mmrl.errors import ConflictError, DataError, ModelError, NotFoundError
from mmrl.models.fingerprint import fingerprint_difference
from mmrl.runs import layout
from mmrl.runs.config_file import changed_settings
from mmrl.runs.forks import fork_conflict, read_fork
from mmrl.runs.reader import RunReader
from mmrl.trainer.checkpoint_folder import find_fault
from mmrl.trainer.state import Stateful

Say = Callable[[str], None]


@dataclass(frozen=True)
class ResumePoint:
    """A whole checkpoint to go on from. state: place in the data, best metric and the model of the run's begin.

    changes: setting -> value there and value here, where it is of another run and this one a fork of that.
    """

    folder: Path
    step: int
    state: dict[str, Any]
    is_fork: bool = False
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def model_folder(self) -> Path:
        return self.folder / MODEL_FOLDER

    @property
    def best(self) -> tuple[float, int] | None:
        """The best value so far of the metric that decides, and its step."""
        best = self.state["best"]
        return (best[0], best[1]) if best else None

    def check_model(self, path: str, fingerprint: Mapping[str, Any]) -> None:
        """Raises ModelError if the model that the run began with is no more what lies at `path`."""
        difference = fingerprint_difference(self.state["model"], fingerprint)
        if difference is not None:
            raise ModelError(
                f"model.path: {path} is not the model that this run began with: {difference}. The checkpoint of step "
                f"{self.step} was trained from the model of before; put that back, or start a new run from this one"
            )

    def restore(self, parts: Mapping[str, Stateful], *, say: Say, elsewhere: Collection[str] = ()) -> None:
        """Gives every part the state that it had. Raises ModelError where a part has none in the checkpoint.

        elsewhere: parts that live in workers, which take their states themselves.
        """
        saved = read_states(self.folder, without=elsewhere)
        for name, part in parts.items():
            if name not in saved and self.is_fork:
                say(f"fork: checkpoint {self.folder.name} has no state of '{name}', which begins anew")
                continue
            if name not in saved:
                raise ModelError(
                    f"checkpoint {self.folder.name} has no state of '{name}' (it has {', '.join(sorted(saved))}); "
                    "resume with the settings of before, or start a new run from its model"
                )
            part.load_state_dict(saved[name])
        unused = sorted(saved.keys() - parts.keys())
        if unused:
            say(f"checkpoint {self.folder.name} has a state of {', '.join(unused)}, which this config does not use")


def newest_whole_checkpoint(
    run_dir: Path, *, before_step: float = math.inf, say: Say = lambda text: None
) -> ResumePoint | None:
    """The newest checkpoint whose files are all as its manifest says; `say` is told of each that is passed over."""
    for step, folder in sorted(_folders(run_dir).items(), reverse=True):
        if step >= before_step:
            continue
        fault = find_fault(folder)
        if fault is None:
            return _point(folder)
        say(f"checkpoint {folder.name} is passed over: {fault}")
    return None


def named_checkpoint(path: Path, run_dir: Path, *, config_yaml: str) -> ResumePoint:
    """The checkpoint at `path`: of the run itself, or of another run where `run_dir` holds no run yet.

    Raises NotFoundError, DataError for one that is not whole, ConflictError for one of another run or config.
    """
    folder = path.expanduser().absolute()
    if layout.parse_checkpoint_name(folder.name) is None or not folder.is_dir():
        raise NotFoundError(
            f"--resume: {path} is no checkpoint; give auto, never, or a folder such as "
            f"{layout.checkpoint_dir(run_dir, 100)}{_those_there(run_dir)}"
        )
    fault = find_fault(folder)
    if fault is not None:
        whole = newest_whole_checkpoint(run_dir)
        hint = f"the newest whole one is {whole.folder}" if whole else "the run has no whole one"
        raise DataError(f"--resume: checkpoint {folder} is damaged: {fault}; {hint}")
    if folder.parent.resolve() != layout.checkpoints_dir(run_dir).resolve():
        if _went_elsewhere(run_dir, step=layout.parse_checkpoint_name(folder.name)):
            raise ConflictError(
                f"--resume: {folder} is a checkpoint of another run than {run_dir}, which holds a run already; name "
                "one of its own checkpoints, or a new folder"
            )
        return _fork(folder, config_yaml)
    return _point(folder)


def fork_point(run_dir: Path, *, config_yaml: str) -> ResumePoint | None:
    """Where a fork goes on from that has no checkpoint of its own yet; None for a run that is no fork.

    Raises NotFoundError where the checkpoint that it began at is gone.
    """
    fork = read_fork(run_dir)
    if fork is None:
        return None
    folder = Path(fork["checkpoint"])
    if not folder.is_dir():
        raise NotFoundError(
            f"{run_dir} is a fork of {folder}, which is gone, and has no whole checkpoint of its own; pin checkpoints "
            "that others begin at (`mmrl checkpoint pin`), and begin again from another one"
        )
    return _fork(folder, config_yaml)


def _fork(folder: Path, config_yaml: str) -> ResumePoint:
    """A checkpoint of another run. Raises ConflictError where its states are of another model, or kind of training."""
    conflict = fork_conflict(folder, config_yaml)
    if conflict is not None:
        raise ConflictError(conflict)
    theirs = (folder / layout.CONFIG_FILE).read_text()
    changes = {key: values for key, values in changed_settings(theirs, config_yaml).items() if key != "name"}
    return replace(_point(folder), is_fork=True, changes=changes)


def _went_elsewhere(run_dir: Path, *, step: int | None) -> bool:
    """Whether the folder holds a run that did not begin after `step`, or that has a checkpoint of its own by now."""
    if not layout.is_run(run_dir):
        return False
    begun = [event for event in RunReader(run_dir).events() if event.kind == "state"]
    begins = {event.fields["step"] for event in begun if isinstance(event.fields.get("step"), int)}
    return bool(_folders(run_dir)) or bool(begins - {step})


def open_checkpoint(folder: Path) -> ResumePoint:
    """A checkpoint anywhere. Raises DataError for one that is not whole."""
    fault = find_fault(folder)
    if fault is not None:
        raise DataError(f"checkpoint {folder} is damaged: {fault}")
    return _point(folder)


def settle(run_dir: Path, point: ResumePoint | None, *, attempt: int, say: Say) -> None:
    """Leaves of the checkpoints those that lie on the line which goes on from `point`.

    Later ones, damaged or of the line that ends here, are renamed to `.left-by-attempt-N-step-…` and nothing is
    deleted of them; half-written ones of attempts that were killed are removed.
    """
    root = layout.checkpoints_dir(run_dir)
    last = 0 if point is None else point.step
    later = {step: folder for step, folder in sorted(_folders(run_dir).items()) if step > last}
    for folder in later.values():
        folder.rename(root / f".left-by-attempt-{attempt}-{folder.name}")
    if later:
        say(
            f"checkpoints of step {', '.join(map(str, later))} lie beyond step {last}, where this attempt begins; they "
            f"are kept as .left-by-attempt-{attempt}-step-… and may be deleted"
        )
    for leftover in root.glob(".step-*.tmp"):
        shutil.rmtree(leftover)


def _folders(run_dir: Path) -> dict[int, Path]:
    root = layout.checkpoints_dir(run_dir)
    found = ((layout.parse_checkpoint_name(path.name), path) for path in (root.iterdir() if root.is_dir() else ()))
    return {step: path for step, path in found if step is not None}


def _point(folder: Path) -> ResumePoint:
    state = json.loads((folder / STATE_FILE).read_text())
    return ResumePoint(folder, state["step"], state)


def _those_there(run_dir: Path) -> str:
    steps = sorted(_folders(run_dir))
    return f" (this run has those of step {', '.join(map(str, steps))})" if steps else ""
