"""Which checkpoints of a run are kept, and the removal of the others.

The rules go by what lies on the disk, so a run that was resumed keeps what it should. Nothing is removed before a newer
checkpoint is whole, that one never is, and one that does not have its files takes nobody's place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from mmrl.config.checkpoint import CheckpointConfig
from mmrl.runs import layout
from mmrl.runs.pins import is_pinned
from mmrl.runs.reader import read_checkpoints
from mmrl.runs.records import CheckpointRecord


def kept_steps(checkpoints: Sequence[CheckpointRecord], config: CheckpointConfig) -> dict[int, str]:
    """Step of each checkpoint that is kept -> the first rule that keeps it. checkpoints: whole ones, by step."""
    kept: dict[int, str] = {}
    for point in checkpoints[-config.keep :]:
        kept.setdefault(point.step, "newest")
    for point in best_checkpoints(checkpoints, config)[: config.keep_best]:
        kept.setdefault(point.step, "best")
    for point in checkpoints:
        if config.keep_every is not None and point.step % config.keep_every == 0:
            kept.setdefault(point.step, "keep_every")
        if point.is_pinned:
            kept.setdefault(point.step, "pinned")
    return kept


def best_checkpoints(checkpoints: Sequence[CheckpointRecord], config: CheckpointConfig) -> list[CheckpointRecord]:
    """Those that have the metric that decides, the best first; of equal ones the earlier."""
    metric = config.best
    if metric is None:
        return []
    sign = -1.0 if config.best_mode == "max" else 1.0
    having = [point for point in checkpoints if point.metrics.get(metric) is not None]
    return sorted(having, key=lambda point: (sign * point.metrics[metric], point.step))


def is_better(value: float, than: float, config: CheckpointConfig) -> bool:
    return value > than if config.best_mode == "max" else value < than


def prune(run_dir: Path, config: CheckpointConfig, *, newest: int) -> list[int]:
    """Removes what no rule keeps of the checkpoints up to step `newest`, which was just written and is whole.

    Returns the steps that were removed. One that is pinned at the last moment stays.
    """
    whole = [point for point in read_checkpoints(run_dir) if point.step <= newest and has_its_files(point.path)]
    kept = kept_steps(whole, config) | {newest: "newest"}
    removed = []
    for point in whole:
        if point.step not in kept and _remove(point.path):
            removed.append(point.step)
    return removed


def has_its_files(folder: Path) -> bool:
    """Whether every file of the manifest is there in its size; that of their content would have to be read."""
    try:
        files = json.loads((folder / layout.MANIFEST_FILE).read_bytes())["files"]
        return all((folder / name).stat().st_size == entry["bytes"] for name, entry in files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _remove(folder: Path) -> bool:
    aside = folder.with_name(f".{folder.name}.removed.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    if is_pinned(aside):
        aside.rename(folder)
        return False
    shutil.rmtree(aside)
    return True
