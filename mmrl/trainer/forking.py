"""A run that begins at another one's checkpoint: what was changed is told, and kept with the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mmrl.config.dump import value_text
from mmrl.runs.forks import read_fork, write_fork
from mmrl.trainer.resume import ResumePoint


def note_fork(run_dir: Path, point: ResumePoint, *, say: Callable[[str], None]) -> None:
    """Writes down where the run comes from and what it has otherwise; once, by its first attempt."""
    if read_fork(run_dir) is not None:
        return
    origin = point.folder.parent.parent
    write_fork(run_dir, checkpoint=point.folder, run=str(origin), step=point.step, changes=point.changes)
    say(f"fork of step {point.step} of {origin}: {len(point.changes)} settings are others")
    for key, (before, after) in point.changes.items():
        say(f"fork: {key}: {value_text(before)} -> {value_text(after)}")
