"""Shared memory in which the ranks of a run meet on a CPU: named after the port of its ranks, and removed with the run.

Whoever ends the run's processes removes what they leave (`remove`). What a machine lost otherwise is removed when the
next run needs some (`remove_stale`). Either leaves alone what a process still has mapped, and what another account
owns.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path("/dev/shm")
_PREFIX = "mmrl-"
_FRESH_S = 60.0
"""A file that is younger may be about to be mapped."""


def prefix_of(port: int | str) -> str:
    """How the names of a run's shared memory begin. port: at which its ranks meet (MASTER_PORT)."""
    return f"{_PREFIX}{port}-"


def remove(port: int | str, *, rank: int | str | None = None) -> list[str]:
    """What the ranks that met at the port have left behind on this machine, or one of them; the names."""
    return _remove(FOLDER.glob(f"{prefix_of(port)}*" if rank is None else f"{prefix_of(port)}*_{rank}"))


def remove_stale() -> list[str]:
    """What runs that are gone have left on this machine, of this account; the names."""
    old = time.time() - _FRESH_S
    found = []
    for path in FOLDER.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < old:
                found.append(path)
    return _remove(found)


def _remove(paths: Iterable[Path]) -> list[str]:
    own = [path for path in paths if _is_own(path)]
    if not own:
        return []
    in_use, removed = mapped(), []
    for path in own:
        if path.name not in in_use:
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path.name)
    return removed


def _is_own(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_uid == os.getuid()
    return False


def mapped() -> set[str]:
    """Names that a process has mapped. Those of other accounts cannot be read, and cannot map what this one owns."""
    start = f"{FOLDER}/{_PREFIX}"
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError), maps.open(errors="replace") as lines:
            found |= {line[line.index(start) :].strip().removeprefix(f"{FOLDER}/") for line in lines if start in line}
    return {name.removesuffix(" (deleted)") for name in found}
