"""When checkpoints are written, and which are kept.

A checkpoint is copied in memory while the loop waits, and written by a thread while it goes on; one at a time. Its
folder takes its final name only when it is whole (`checkpoint_folder`). One that cannot be written is said and counted,
and the run goes on, with the checkpoints of before untouched; only the last one must succeed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from mmrl.config.checkpoint import CheckpointConfig
from mmrl.data.stream import PromptStream
from mmrl.errors import ConflictError, RunFailedError
from mmrl.runs import layout
from mmrl.trainer.background import Background, Outcome
from mmrl.trainer.checkpoint_folder import fsync_folder
from mmrl.trainer.disk_room import check_room, room_for_next
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import newest_whole_checkpoint
from mmrl.trainer.retention import is_better, prune
from mmrl.trainer.snapshot import Snapshot, SnapshotTaker


class Checkpointer:
    """Writes checkpoints when due and keeps those that the config's rules ask for (`retention`).

    model: fingerprint of the model that the run began with. expected_bytes: of one checkpoint, as far as the model
    tells. best: value and step of the best one so far.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        *,
        snapshots: SnapshotTaker,
        prompts: PromptStream,
        recorder: Recorder,
        total_steps: int,
        model: Mapping[str, Any],
        expected_bytes: int = 0,
        best: tuple[float, int] | None = None,
    ) -> None:
        self._config = config
        self.snapshots = snapshots
        self._prompts = prompts
        self._recorder = recorder
        self._total_steps = total_steps
        self._model = dict(model)
        self._expected_bytes = expected_bytes
        self._best = best
        self._run_dir = recorder.writer.run_dir
        self._background = Background("mmrl-checkpoint")
        self._in_flight: Snapshot | None = None
        self._newest_step: int | None = None
        self._num_failed = 0
        self._last_error: Exception | None = None

    def save_if_due(self, step: int) -> None:
        """Hands a snapshot of a due step to the thread. `timing_s/checkpoint` is how long that held up the loop: the
        copy, and `timing_s/checkpoint_wait` of it for the checkpoint before, where that was still being written."""
        self._collect(wait=False)
        every = self._config.every
        if step == self._total_steps or (every > 0 and step % every == 0):
            self._save(step)

    def save_now(self, step: int) -> bool:
        """A checkpoint of the step that has just ended, due or not, for a run that stops here. True once it is whole;
        False where it could not be written, which is said."""
        self._collect(wait=False)
        if self._newest_step != step:
            self._save(step)
        self._collect(wait=True)
        return self._last_error is None

    def _save(self, step: int) -> None:
        start = time.perf_counter()
        self._collect(wait=True)
        waited = time.perf_counter() - start
        self._newest_step = step
        try:
            needed = room_for_next(self._run_dir, self._expected_bytes)
            check_room(self._run_dir, needed, what="it")
        except RunFailedError as error:
            self._note(step, Outcome(None, error, 0.0))
            return
        snapshot = self._take(step)
        self._in_flight = snapshot
        self._background.start(lambda: self._write(snapshot))
        times = {"timing_s/checkpoint": time.perf_counter() - start, "timing_s/checkpoint_wait": waited}
        self._recorder.end_late(step, {**times, "checkpoint/copied_bytes": float(snapshot.num_bytes)})

    def wait(self) -> None:
        """Until nothing is being written any more. Raises ConflictError if the run was taken over."""
        self._collect(wait=True)

    def require_last(self) -> None:
        """Raises RunFailedError if the newest checkpoint that was due could not be written."""
        if self._last_error is None:
            return
        point = newest_whole_checkpoint(self._run_dir)
        good = f"the last good one is {point.folder.name}" if point else "there is no good one"
        raise RunFailedError(
            f"the last checkpoint could not be written: {_reason(self._last_error)}; {good}. Make room or mend the "
            "cause, then start the run again: it goes on from there"
        ) from self._last_error

    def _take(self, step: int) -> Snapshot:
        metrics = self._recorder.current("")
        deciding, best = self._config.best, self._best
        value = metrics.get(deciding) if deciding is not None else None
        if value is not None and isfinite(value) and (best is None or is_better(value, best[0], self._config)):
            best = (value, step)
        state = {"prompts": self._prompts.state(), "best": best, "model": self._model}
        told = {name: entry for name, entry in metrics.items() if name.startswith("eval/") or name == deciding}
        return self.snapshots.take(step, state=state, metrics=told)

    def _write(self, snapshot: Snapshot) -> int:
        """In the thread. Returns the bytes written."""
        final = layout.checkpoint_dir(self._run_dir, snapshot.step)
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            num_bytes = self.snapshots.write(snapshot, temporary)
            self._take_name(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._recorder.writer.event("checkpoint", step=snapshot.step, path=f"checkpoints/{final.name}")
        prune(self._run_dir, self._config, newest=snapshot.step)
        return num_bytes

    def _take_name(self, temporary: Path, final: Path) -> None:
        if not self._recorder.writer.owns():
            raise ConflictError(
                f"checkpoint {final.name}: another attempt has taken over {self._run_dir}; "
                "this one stops without writing"
            )
        temporary.rename(final)
        fsync_folder(final.parent)

    def _collect(self, *, wait: bool) -> None:
        """Says how the checkpoint in flight ended, once it has."""
        outcome = self._background.collect(wait=wait)
        if outcome is None:
            return
        snapshot, self._in_flight = self._in_flight, None
        assert snapshot is not None
        if outcome.error is None:
            self._best = snapshot.state["best"]
        self._note(snapshot.step, outcome)

    def _note(self, step: int, outcome: Outcome) -> None:
        """Says how the checkpoint of a step ended. Raises ConflictError if the run was taken over."""
        self._last_error = outcome.error
        values = {"timing_s/checkpoint_write": outcome.seconds}
        if outcome.error is None:
            values["checkpoint/written_bytes"] = float(outcome.value or 0)
        elif isinstance(outcome.error, ConflictError):
            raise outcome.error
        else:
            self._num_failed += 1
            values["checkpoint/num_failed"] = float(self._num_failed)
            self._recorder.warn(
                f"the checkpoint of step {step} could not be written: {_reason(outcome.error)}; the run goes on, and "
                "those of before stay"
            )
        self._recorder.end_late(step, values)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return " ".join(str(error).split()) or type(error).__name__
