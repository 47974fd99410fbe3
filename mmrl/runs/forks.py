"""A run that began at the checkpoint of another one: `fork.json` in its folder says which, and what was changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmrl.runs.disk import plain, write_whole

FORK_FILE = "fork.json"


def write_fork(run_dir: Path, *, checkpoint: Path, run: str, step: int, changes: Mapping[str, tuple[Any, Any]]) -> None:
    """checkpoint: its folder, of step `step` of `run`. changes: setting -> value there and value here."""
    fork = {
        "schema_version": 1,
        "run": run,
        "step": step,
        "checkpoint": str(checkpoint),
        "changes": {key: list(values) for key, values in changes.items()},
        "forked_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_whole(run_dir / FORK_FILE, json.dumps(plain(fork), indent=1).encode())


def read_fork(run_dir: Path) -> dict[str, Any] | None:
    """What `write_fork` wrote; None for a run that is no fork."""
    try:
        fork = json.loads((run_dir / FORK_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return fork if isinstance(fork, dict) else None
