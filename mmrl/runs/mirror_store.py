"""Files in an object store, by name below one address."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmrl.config.secrets import redact
from mmrl.errors import ConfigError
from mmrl.runs.disk import write_whole

_PART = re.compile(r"(.+)\.part-(\d{12})")


class Store:
    """sizes: bytes of each file there, as far as this process knows; it is the only one that writes.

    A file that grows is kept as numbered parts, `NAME.part-<first byte>`, each written once.
    Raises ConfigError for an address that no library can open, OSError from any method when the store does not answer.
    """

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self._fs, self._root = _open(self.address)
        self.sizes = self._list()

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes | None:
        """The content of a file, or its bytes start to end (excluded); None if there is none."""
        try:
            with _answering():
                return bytes(self._fs.cat_file(self._path(name), start=start, end=end))
        except FileNotFoundError:
            return None

    def put(self, name: str, path: Path) -> None:
        with _answering():
            self._make_folder(name)
            self._fs.put_file(str(path), self._path(name))
        self.sizes[name] = path.stat().st_size

    def fetch(self, name: str, path: Path) -> None:
        """To `path`, which is whole under its name or not there. Several may fetch the same file at once, also one that
        hung for long and that nobody waits for any more: each writes a file of its own."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.fetched.tmp")
        try:
            with _answering():
                self._fs.get_file(self._path(name), str(partial))
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        with _answering():
            self._fs.rm_file(self._path(name))
        del self.sizes[name]

    def grown(self) -> dict[str, int]:
        """The files that are kept in parts, with the bytes that are there of each."""
        sizes: dict[str, int] = {}
        for name, size in self.sizes.items():
            part = _PART.fullmatch(name)
            if part is not None:
                sizes[part[1]] = max(sizes.get(part[1], 0), int(part[2]) + size)
        return sizes

    def parts(self, name: str) -> list[tuple[int, int, str]]:
        """Of a file that is kept in parts, in order: first byte, number of bytes, and name of each."""
        found = [(match, size) for part, size in self.sizes.items() if (match := _PART.fullmatch(part))]
        return sorted((int(match[2]), size, match[0]) for match, size in found if match[1] == name)

    def append(self, name: str, data: bytes, *, start: int) -> None:
        """The bytes from `start` on of a file that grows."""
        part = f"{name}.part-{start:012d}"
        with _answering():
            self._make_folder(part)
            self._fs.pipe_file(self._path(part), data)
        self.sizes[part] = len(data)

    def join(self, name: str, path: Path) -> None:
        """All parts of a file that grows, in order, to `path`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, b"".join(self.read(part) or b"" for _, _, part in self.parts(name)))

    def _list(self) -> dict[str, int]:
        self._fs.invalidate_cache()
        try:
            with _answering():
                found = self._fs.find(self._root, detail=True)
        except FileNotFoundError:
            return {}
        prefix = self._root.rstrip("/") + "/"
        return {path.removeprefix(prefix): int(entry["size"]) for path, entry in found.items() if path != self._root}

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"

    def _make_folder(self, name: str) -> None:
        """For stores that are disks; object stores have no folders."""
        if "file" in self._fs.protocol:
            self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)


@contextmanager
def _answering() -> Iterator[None]:
    """Whatever a store's library raises becomes an OSError: some have errors of their own for a server that is gone."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _open(address: str) -> tuple[Any, str]:
    import fsspec

    shown = redact(address)
    try:
        return fsspec.core.url_to_fs(address)
    except ImportError as error:
        protocol = address.partition("://")[0]
        raise ConfigError(
            f"run directory {shown}: {protocol}:// needs a library that is not installed ({error}); "
            "for s3 it is `pip install s3fs`"
        ) from error
    except ValueError as error:
        raise ConfigError(f"run directory {shown}: {error}; give a folder, s3://BUCKET/PATH or file:///PATH") from error
