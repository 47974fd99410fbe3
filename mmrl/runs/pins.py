"""Checkpoints that are kept whatever a run's retention says: a file `pinned.json` in the checkpoint's folder."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from mmrl.errors import NotFoundError
from mmrl.runs.disk import write_whole

PIN_FILE = "pinned.json"


def pin_checkpoint(folder: Path, *, note: str = "") -> None:
    """Raises NotFoundError where the checkpoint is gone. Pinning again changes the note."""
    if not folder.is_dir():
        raise NotFoundError(f"checkpoint {folder} is gone; it was removed by the run's retention or by hand")
    pin = {"note": note, "since": datetime.now(UTC).isoformat(timespec="seconds")}
    write_whole(folder / PIN_FILE, json.dumps(pin).encode())


def unpin_checkpoint(folder: Path) -> None:
    """Nothing happens where it was not pinned. Raises NotFoundError where the checkpoint is gone."""
    if not folder.is_dir():
        raise NotFoundError(f"checkpoint {folder} is gone")
    (folder / PIN_FILE).unlink(missing_ok=True)


def is_pinned(folder: Path) -> bool:
    return (folder / PIN_FILE).is_file()
