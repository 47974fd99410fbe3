"""Checkpoints of a run whose weights live in workers: they write their shards, the controller what is left.

The ranks write while the loop waits, beside the checkpoint's place; the thread that writes checkpoints then adds the
controller's parts and seals the folder. Whole, it is read like one of a run in a single process.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmrl.cluster.group import WorkerGroup
from mmrl.errors import CheckpointWriteError
from mmrl.models.policy import PolicyModel
from mmrl.trainer.snapshot import Snapshot, Snapshots
from mmrl.trainer.state import Stateful


class ClusterSnapshots:
    """Meets `trainer.snapshot.SnapshotTaker`.

    actor: the group that holds the model and the states of the parts that are trained. skeleton: the model without
    weights, for its companions. staging: a folder that all ranks see, on the disk of the checkpoints.
    """

    def __init__(
        self,
        actor: WorkerGroup,
        skeleton: PolicyModel,
        parts: Mapping[str, Stateful],
        config_yaml: bytes,
        *,
        staging: Path,
    ) -> None:
        self._actor = actor
        self._own = Snapshots(skeleton, parts, config_yaml=config_yaml)
        self._staging = staging
        self._faults: dict[int, CheckpointWriteError] = {}

    def take(self, step: int, *, state: Mapping[str, Any], metrics: Mapping[str, float]) -> Snapshot:
        """The ranks' part is on the disk when this returns, so that the run may go on. Where it could not be written,
        `write` raises why: a full disk ends no run that may yet find room."""
        folder = self._staged(step)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
            self._actor.save(folder)
        except OSError as error:
            self._faults[step] = CheckpointWriteError(f"{error.strerror or error} ({error.filename or folder})")
        except CheckpointWriteError as error:
            self._faults[step] = error
        return self._own.take_parts(step, state=state, metrics=metrics)

    def write(self, snapshot: Snapshot, folder: Path) -> int:
        """Writes into `folder`, which must be new or empty, the manifest last. Returns the bytes written.

        Raises CheckpointWriteError where the ranks could not write theirs.
        """
        staged = self._staged(snapshot.step)
        fault = self._faults.pop(snapshot.step, None)
        if fault is not None:
            shutil.rmtree(staged, ignore_errors=True)
            raise fault
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(staged.iterdir()):
            path.rename(folder / path.name)
        staged.rmdir()
        return self._own.write_parts(snapshot, folder)

    def _staged(self, step: int) -> Path:
        return self._staging / f".step-{step:06d}.ranks.tmp"
