"""Writing that outlives a full disk: a file is whole under its name or not there, a line is whole or not there."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmrl.errors import DataError, RunFailedError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An OSError inside becomes a RunFailedError that names the path and the bytes that are free there."""
    try:
        yield
    except OSError as error:
        raise RunFailedError(_explain(path, error)) from error


def write_whole(path: Path, data: bytes) -> None:
    """Writes beside the name, flushes to the disk, then renames. What stood under the name stays until then. Several
    threads may write the same file at once: one of them is the last, and it is whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def link_or_copy(source: Path, target: Path) -> None:
    """`target` becomes another name of `source`, or its copy where the disk allows no link; kept if it exists."""
    if target.exists():
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno in _NO_ROOM or not source.exists():
                raise
            write_whole(target, source.read_bytes())


class JsonLines:
    """A growing file of JSON objects, one a line. Each line is handed to the system at once; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        with writing(path):
            self._file = path.open("ab", buffering=0)

    def append(self, row: Mapping[str, Any]) -> None:
        """Raises RunFailedError when the line does not fit; what was written of it is taken back."""
        line = json.dumps(plain(row), ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"
        with self._lock, writing(self._path):
            start = os.fstat(self._file.fileno()).st_size
            try:
                self._write_all(line)
            except OSError:
                os.ftruncate(self._file.fileno(), start)
                raise

    def close(self) -> None:
        self._file.close()

    def _write_all(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._file.write(rest) :]


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file that may still grow: a torn last line is left out; a missing file has none.

    Raises DataError for a line before the last that is no JSON object.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    last = max((index for index, line in enumerate(lines) if line.strip()), default=-1)
    rows = []
    for index, line in enumerate(lines[: last + 1]):
        row = _parse(line)
        if row is not None:
            rows.append(row)
        elif index < last and line.strip():
            raise DataError(f"{path}:{index + 1}: not a JSON object: {line[:80]!r}; remove that line to read the rest")
    return rows


def plain(value: Any) -> Any:
    """What JSON can hold: numbers that are not finite become None, numpy scalars plain ones, anything else text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def _explain(path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in _NO_ROOM:
        return (
            f"cannot write {path}: {reason} ({_free_bytes(path)} bytes free there); "
            "make room or raise the limit, then resume the run"
        )
    return f"cannot write {path}: {reason} ({_free_bytes(path)} bytes free there); check that the folder may be written"


def _free_bytes(path: Path) -> int | str:
    for folder in path.absolute().parents:
        if folder.is_dir():
            return shutil.disk_usage(folder).free
    return "unknown"
