"""Files that appear whole or not at all, and names that are safe to use as folders."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from mmrl.errors import MmrlError

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Turns the operating system's refusal to write (disk full, no permission) into one clear message."""
    try:
        yield
    except OSError as error:
        raise MmrlError(
            f"cannot write {target}: {error.strerror or error}; free some space, mend its permissions, "
            "or set MMRL_HOME to a folder elsewhere"
        ) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` under a temporary name in the same folder, then renames it: readers see all of it or nothing."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with explain_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def folder_in_progress(parent: Path) -> Iterator[Path]:
    """A new folder under `parent` to fill and then rename; whatever is left of it at the end is removed."""
    temporary = parent / f".{uuid4().hex}.tmp"
    with explain_write_errors(parent):
        temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock against other processes and threads; waits for it."""
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
