"""The logs of a run wherever it lies: on this machine, or in its store as the numbered parts that came there.

A machine that trained an attempt has its log to the last line, every other one what came over. Of each file the longer
one counts: both begin with the same bytes.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Literal

from mmrl.config.secrets import redact
from mmrl.errors import RunFailedError
from mmrl.runs import layout
from mmrl.runs.logs import LogFile
from mmrl.runs.mirror import is_address, local_folder
from mmrl.runs.mirror_store import Store

FRESH_S = 2.0
"""A store is asked what it has no more often than that."""
_PIECE_BYTES = 8 << 20


class RunLogs:
    """One run's logs, looked for again at each call.

    Where its store does not answer, what is here or was known stands. Raises RunFailedError where that is nothing.
    """

    def __init__(self, run_dir: str) -> None:
        self._address = run_dir if is_address(run_dir) else None
        self.folder = local_folder(run_dir)
        self._listed: dict[int, tuple[float, list[LogFile]]] = {}

    @property
    def is_in_a_store(self) -> bool:
        return self._address is not None

    def attempts(self, last: int) -> list[int]:
        """Those that may have logs, ascending. last: of the run's job; a store has all of them up to that."""
        return sorted({*layout.attempts(self.folder), *(range(1, last + 1) if self.is_in_a_store else ())})

    def files(self, attempt: int, *, is_over: bool = False) -> list[LogFile]:
        """By name. is_over: nothing more will be written, so that the store is asked once more whatever is known."""
        found = {file.name: file for file in local_logs(self.folder, attempt)}
        for file in self._stored(attempt, FRESH_S if not is_over else 0.0, may_lack=bool(found)):
            if file.name not in found or file.num_bytes > found[file.name].num_bytes:
                found[file.name] = file
        return [found[name] for name in sorted(found)]

    def _stored(self, attempt: int, fresh_s: float, *, may_lack: bool) -> list[LogFile]:
        if self._address is None:
            return []
        at, files = self._listed.get(attempt, (None, []))
        if at is None or time.monotonic() - at >= fresh_s:
            try:
                files = stored_logs(self._address, attempt)
            except RunFailedError:
                if at is None and not may_lack:
                    raise
            self._listed[attempt] = (time.monotonic(), files)
        return files


def local_logs(run_dir: Path, attempt: int) -> list[LogFile]:
    """The logs of an attempt in a folder of this machine, by name."""
    folder = layout.attempt_dir(run_dir, attempt) / "logs"
    paths = sorted(folder.rglob("*")) if folder.is_dir() else []
    return [
        LogFile(attempt, path.relative_to(folder).as_posix(), path, path.stat().st_size)
        for path in paths
        if path.is_file() and not path.is_symlink()
    ]


def stored_logs(address: str, attempt: int) -> list[LogFile]:
    """The logs of an attempt in a store, by name. Raises RunFailedError where it does not answer."""
    try:
        store = Store(_logs_address(address, attempt))
    except OSError as error:
        raise RunFailedError(f"{redact(address)} cannot be read: {error}") from error
    return [LogFile(attempt, name, StoredLog(store, name), size) for name, size in sorted(store.grown().items())]


def bring_logs(run_dir: str, attempt: int) -> None:
    """What an attempt that has ended left in its logs here and not in its store, to the last byte: its last words come
    after its own mirror's end, and a killed one brought nothing for a while. Raises OSError where the store does not
    answer."""
    here = local_logs(local_folder(run_dir), attempt) if is_address(run_dir) else []
    if not here:
        return
    store = Store(_logs_address(run_dir, attempt))
    there = store.grown()
    for file in here:
        with file.source.open("rb") as content:
            place = content.seek(there.get(file.name, 0))
            while data := content.read(_PIECE_BYTES):
                store.append(file.name, data, start=place)
                place += len(data)


class StoredLog:
    """A file that grows in a store, opened for reading like one on disk, of the length that it had when it was listed.

    Opening and reading raise OSError where the store does not answer.
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name

    def open(self, mode: Literal["rb"] = "rb") -> io.BufferedReader:
        return io.BufferedReader(_Parts(self._store, self._name))

    def __str__(self) -> str:
        return redact(f"{self._store.address}/{self._name}")


class _Parts(io.RawIOBase):
    """Numbered parts as one file; of each part only the bytes that are asked for are fetched."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._parts = store.parts(name)
        self._size = max((start + size for start, size, _ in self._parts), default=0)
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        for start, size, name in self._parts:
            if start <= self._place < start + size:
                first = self._place - start
                data = self._store.read(name, first, min(size, first + len(buffer)))
                if not data:
                    raise OSError(f"{redact(self._store.address)}/{name} is gone")
                buffer[: len(data)] = data
                self._place += len(data)
                return len(data)
        return 0


def _logs_address(address: str, attempt: int) -> str:
    return f"{address.rstrip('/')}/{layout.attempt_dir(Path(), attempt).name}/logs"
