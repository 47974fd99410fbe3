"""What a run writes aside when a number is not finite, for `mmrl train --replay`.

attempt-2/faults/step-000007/
    batch.pt        the mini-batch, or the prompts with the responses that were sampled
    checkpoint/     the run as it stood: weights, optimiser, random numbers, config; as in checkpoints/
    fault.json      what was found, at which step and update; written last
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mmrl.batch import GroupBatch, PreparedImage, PreparedPrompt
from mmrl.engines.finite import Learner, NotFiniteError
from mmrl.errors import DataError, NotFoundError, RunFailedError
from mmrl.trainer.checkpoint_folder import fsync_folder
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.snapshot import SnapshotTaker
from mmrl.types import ImageRef

FAULT_FILE = "fault.json"
BATCH_FILE = "batch.pt"
CHECKPOINT_FOLDER = "checkpoint"

_CLASSES = [GroupBatch, PreparedPrompt, PreparedImage, ImageRef]


@dataclass(frozen=True)
class Fault:
    """One stop of a run. update: place in its step, from 0; None for numbers that no update was made of.

    samples: ids of the batch's samples, prompt by prompt. has_checkpoint: whether the run as it stood is there too.
    """

    step: int
    message: str
    learner: Learner
    update: int | None
    samples: tuple[str, ...]
    has_checkpoint: bool = False


def write_fault(error: NotFiniteError, step: int, *, snapshots: SnapshotTaker, recorder: Recorder) -> Path | None:
    """Writes aside what led to `error`, as much of it as the disk takes. Returns the fault.json; None without a batch.

    The run stops anyway, so whatever cannot be written is said and no error of its own.
    """
    if error.batch is None:
        return None
    folder = recorder.writer.attempt_dir / "faults" / f"step-{step:06d}"
    fault = Fault(step, str(error), error.learner, error.update, error.batch.sample_ids or ())
    try:
        folder.mkdir(parents=True)
        with (folder / BATCH_FILE).open("wb") as file:
            torch.save(error.batch, file)
            os.fsync(file.fileno())
        fault = replace(fault, has_checkpoint=_write_checkpoint(folder, step, snapshots, recorder))
        (folder / FAULT_FILE).write_text(json.dumps({"schema_version": 1, **asdict(fault)}, indent=1))
        fsync_folder(folder)
    except Exception as failure:
        _say(recorder, f"the batch of the fault could not be written to {folder}: {failure}")
        return None
    return folder / FAULT_FILE


def read_fault(path: Path) -> tuple[Fault, GroupBatch, Path]:
    """The fault, its batch and its folder. `path` is the folder or any file in it."""
    folder = path if path.is_dir() else path.parent
    try:
        values: dict[str, Any] = json.loads((folder / FAULT_FILE).read_text())
    except FileNotFoundError:
        raise NotFoundError(
            f"--replay: {path} is no fault that a run has written aside; give the {FAULT_FILE} in "
            "RUN/attempt-N/faults/step-NNNNNN"
        ) from None
    except ValueError as error:
        raise DataError(f"--replay: {folder / FAULT_FILE} is damaged: {error}") from error
    values.pop("schema_version")
    with torch.serialization.safe_globals(_CLASSES):
        batch = torch.load(folder / BATCH_FILE, map_location="cpu", weights_only=True)
    return Fault(**{**values, "samples": tuple(values["samples"])}), batch, folder


def _write_checkpoint(folder: Path, step: int, snapshots: SnapshotTaker, recorder: Recorder) -> bool:
    try:
        snapshot = snapshots.take(step, state={"prompts": None, "best": None, "model": {}}, metrics={})
        snapshots.write(snapshot, folder / CHECKPOINT_FOLDER)
    except Exception as failure:
        shutil.rmtree(folder / CHECKPOINT_FOLDER, ignore_errors=True)
        _say(
            recorder,
            f"the weights of the fault could not be written to {folder}: {failure}; a replay takes those of the "
            "checkpoint before it",
        )
        return False
    return True


def _say(recorder: Recorder, text: str) -> None:
    """A warning, as long as the disk takes one."""
    with contextlib.suppress(RunFailedError):
        recorder.warn(text)
