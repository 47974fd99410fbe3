"""A run that began at the checkpoint of another one: `fork.json` in its folder says which, and what was changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmrl.checkpoint_files import MODEL_FOLDER
from mmrl.runs.config_file import identity_conflict
from mmrl.runs.disk import plain, write_whole
from mmrl.runs.layout import CONFIG_FILE

FORK_FILE = "fork.json"

MAY_CHANGE = ("name", "seed", "data.train", "algorithm.type")
"""Settings of a run's identity that a fork may have otherwise."""


def fork_conflict(checkpoint: Path, config_yaml: str) -> str | None:
    """Why no run of this config can begin at the checkpoint: its states are of another model, or kind of training."""
    conflict = identity_conflict((checkpoint / CONFIG_FILE).read_text(), config_yaml, except_for=MAY_CHANGE)
    if conflict is None:
        return None
    return (
        f"checkpoint {checkpoint} cannot be forked with this config: {conflict}. To begin from its weights alone, set "
        f"model.path: {checkpoint / MODEL_FOLDER}"
    )


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
