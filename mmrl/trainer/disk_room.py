"""Is there room for the next checkpoint? Asked before anything of it is written."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from mmrl.config import RunConfig
from mmrl.errors import RunFailedError
from mmrl.models.policy import PolicyModel
from mmrl.runs.reader import read_checkpoints
from mmrl.trainer.memory import num_parameters

_WEIGHT_BYTES = 4
_MOMENTS_BYTES = 8
_REST_BYTES = 1 << 20
"""Tokenizer, processor and states that do not grow with the model, at least."""


def expected_bytes(config: RunConfig, policy: PolicyModel) -> int:
    """Of one checkpoint: all weights in float32, and two moments of each trained one; the same for a critic."""
    total, trained = num_parameters(policy)
    size = _WEIGHT_BYTES * total + _MOMENTS_BYTES * trained
    if config.kind == "rl" and config.algorithm.needs_critic:
        size += (_WEIGHT_BYTES + _MOMENTS_BYTES) * trained
    return size + _REST_BYTES


def num_kept_at_once(config: RunConfig) -> int:
    """Checkpoints of the run that lie on the disk together at most: those that the rules keep, and the next one."""
    rules, steps = config.checkpoint, config.train.steps
    written = (steps // rules.every if rules.every else 0) + 1
    for_good = steps // rules.keep_every if rules.keep_every else 0
    best = rules.keep_best if rules.best is not None else 0
    return min(written, rules.keep + best + for_good + 1)


def check_room(run_dir: Path, needed: int, *, what: str) -> None:
    """Raises RunFailedError, with both numbers, where the disk has fewer than `needed` bytes free."""
    free = free_bytes(run_dir)
    if free < needed:
        raise RunFailedError(
            f"{what} takes about {_mib(needed)} and {_mib(free)} are free on the disk of {run_dir}; make room, such as "
            "by a lower checkpoint.keep or `mmrl checkpoint unpin`"
        )


def check_room_of_run(config: RunConfig, policy: PolicyModel, run_dir: Path, *, warn: Callable[[str], None]) -> None:
    """Refuses a run whose disk has no room for one checkpoint, and warns where not all will fit that it is to keep."""
    one = expected_bytes(config, policy)
    check_room(run_dir, one, what="checkpoint: one of this run")
    count = num_kept_at_once(config) - len(read_checkpoints(run_dir))
    free = free_bytes(run_dir)
    if count * one > free:
        warn(
            f"checkpoint: {count} of them will lie on the disk at once, about {_mib(count * one)} in all, and "
            f"{_mib(free)} are free on the disk of {run_dir}; lower checkpoint.keep, or make room before it is full"
        )


def room_for_next(run_dir: Path, estimate: int) -> int:
    """Bytes that the next checkpoint of a run takes: what its newest took, else `estimate`."""
    written = read_checkpoints(run_dir)
    return written[-1].num_bytes if written else estimate


def free_bytes(path: Path) -> int:
    """Of the disk that holds `path`, or the nearest folder above it that exists."""
    folder = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())
    return shutil.disk_usage(folder).free


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB ({num_bytes} bytes)"
