"""Files that appear whole or not at all, and names that are safe to use as folders."""

from __future__ import annotations

import contextlib
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
        raise _explained(target, error) from error


def _explained(target: Path | str, error: OSError) -> MmrlError:
    return MmrlError(
        f"cannot write {target}: {error.strerror or error}; free some space, mend its permissions, "
        "or set MMRL_HOME to a folder elsewhere"
    )


def write_bytes(path: Path | str, data: bytes) -> None:
    """Writes `data` under a temporary name in the same folder, then renames it: readers see all of it or nothing."""
    folder, name = os.path.split(path)
    temporary = f"{folder}/.{name}.{os.urandom(16).hex()}.tmp"
    try:
        _write_new(temporary, data)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _explained(path, error) from error
        raise


def _write_new(path: str, data: bytes) -> None:
    """Makes the folder only where it is missing: of the many files of an image store, few are the first in theirs."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(path, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
    try:
        written = os.write(descriptor, data)
        while written < len(data):
            written += os.write(descriptor, memoryview(data)[written:])
    finally:
        os.close(descriptor)


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
