"""Zip and tar archives, unpacked to a temporary folder after every member was looked at.

A member that would leave the folder, a link, a device, an encrypted or repeated member: the whole archive is refused
and nothing is written. So is one that unpacks to more than it may, by what it declares and again by what it gives.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

from mmrl.data.files import explain_write_errors
from mmrl.data.formats.content import kind_of
from mmrl.errors import DataError

MAX_MEMBERS = 2_000_000
MAX_RATIO = 200
"""Largest size unpacked as a multiple of the archive's own; images hardly shrink, rows of text by 5 to 30."""
FREE_BYTES = 64 * 2**20
"""An archive may always unpack to this much, whatever its ratio."""
DISK_RESERVE_BYTES = 2**30
"""What must be left free on the disk."""

_FOLDER = "archive"
"""Name of the folder inside the temporary one: rows tell it as their source, so it is always the same."""
_COPY_BYTES = 1 << 20
_MAX_READ_BYTES = 16 << 20
_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


class UnpackedFolder:
    """A folder in a temporary one, which is removed when nothing refers to it any more, or when the process ends.

    Only the process that made it removes it: a copy sent to another process, or inherited by it, never does.
    """

    def __init__(self, path: Path, *, is_owner: bool = True) -> None:
        self.path = path
        if is_owner:
            weakref.finalize(self, _remove, str(path.parent), os.getpid())

    def __reduce__(self) -> tuple[Any, ...]:
        return _borrowed, (self.path,)


@dataclass(frozen=True)
class _Member:
    """name: as the archive has it. num_bytes: as declared. trouble: why it is refused, or None."""

    name: str
    num_bytes: int
    is_folder: bool
    trouble: str | None


def is_archive(path: Path) -> bool:
    """Whether a file is a zip or tar archive, by its content; a Parquet file or a text is none."""
    kind = kind_of(path)
    return kind in ("zip", "tar") or (kind in ("gzip", "bzip2", "xz") and path.name.lower().endswith(_SUFFIXES))


def unpack(path: Path) -> UnpackedFolder:
    """The archive's files in a new temporary folder. Raises DataError for one that is refused, with nothing written."""
    temporary = Path(tempfile.mkdtemp(prefix="mmrl-unpacked-"))
    folder = temporary / _FOLDER
    try:
        folder.mkdir()
        with _reporting_damage(path):
            (_unpack_zip if kind_of(path) == "zip" else _unpack_tar)(path, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return UnpackedFolder(folder)


def _unpack_zip(path: Path, target: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        infos = archive.infolist()
        _check(path, (_zip_member(info) for info in infos), target)
        for info in infos:
            if not info.is_dir():
                with archive.open(info) as data:
                    _write(path, info.filename, data, info.file_size, target)


def _unpack_tar(path: Path, target: Path) -> None:
    """Twice through: headers first, so that nothing is written of an archive whose last member is refused."""
    with _open_tar(path) as archive:
        _check(path, (_tar_member(info) for info in archive), target)
    with _open_tar(path) as archive:
        for info in archive:
            data = archive.extractfile(info) if info.isreg() else None
            if data is not None:
                _write(path, info.name, data, info.size, target)


@contextmanager
def _open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    opener: Any = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}.get(kind_of(path), open)
    with opener(path, "rb") as data:
        guarded: Any = _SmallReads(data)
        with tarfile.open(fileobj=guarded, mode="r:") as archive:
            yield archive


class _SmallReads:
    """A binary file that refuses to be read by large pieces, as tarfile reads a header that declares its own size."""

    def __init__(self, data: IO[bytes]) -> None:
        self._data = data
        self.seek = data.seek
        self.tell = data.tell

    def read(self, num_bytes: int = -1) -> bytes:
        if not 0 <= num_bytes <= _MAX_READ_BYTES:
            raise tarfile.ReadError(f"a header of {num_bytes:,} bytes")
        return self._data.read(num_bytes)


def _zip_member(info: zipfile.ZipInfo) -> _Member:
    mode = info.external_attr >> 16
    trouble = None
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_IFMT(mode) == 0):
        trouble = "is a link" if stat.S_ISLNK(mode) else "is a device or another special file"
    elif info.flag_bits & 1:
        trouble = "is encrypted"
    return _Member(info.filename, info.file_size, info.is_dir(), trouble)


def _tar_member(info: tarfile.TarInfo) -> _Member:
    trouble = None
    if info.issym() or info.islnk():
        trouble = "is a link"
    elif not (info.isreg() or info.isdir()):
        trouble = "is a device or another special file"
    return _Member(info.name, info.size, info.isdir(), trouble)


def _check(path: Path, members: Iterable[_Member], target: Path) -> None:
    """Raises DataError for the first member that is refused, and for an archive that is too large."""
    allowed = _allowed_bytes(path, target)
    total = 0
    names: dict[str, bool] = {}
    for member in members:
        if member.is_folder and os.path.normpath(member.name) == ".":
            continue
        trouble = member.trouble or _name_trouble(member.name)
        place = os.path.normpath(member.name)
        if trouble is None and place in names and not (member.is_folder and names[place]):
            trouble = "is there twice"
        if trouble:
            raise DataError(
                f"{path}: member {member.name[:200]!r} {trouble}; the archive is refused and nothing of it was written"
            )
        names[place] = member.is_folder
        total += member.num_bytes
        if total > allowed or len(names) > MAX_MEMBERS:
            raise DataError(
                f"{path}: unpacks to more than {allowed:,} bytes ({MAX_RATIO} times its own size, or what the disk "
                f"has room for) or {MAX_MEMBERS:,} members; unpack it yourself and give the folder"
            )
    _check_no_file_is_a_folder(path, names)


def _check_no_file_is_a_folder(path: Path, names: dict[str, bool]) -> None:
    for name in names:
        for parent in PurePosixPath(name).parents:
            if names.get(str(parent)) is False:
                raise DataError(f"{path}: {str(parent)!r} is a file and a folder; the archive is refused")


def _name_trouble(name: str) -> str | None:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not name.strip() or "\0" in name or not parts:
        return "has no name"
    if name.startswith(("/", "\\")) or PureWindowsPath(name).drive:
        return "has an absolute path"
    if ".." in parts:
        return "leads out of the archive's folder"
    if any(len(os.fsencode(part)) > 255 for part in parts):
        return "has a name that is too long"
    return None


def _allowed_bytes(path: Path, target: Path) -> int:
    by_ratio = max(FREE_BYTES, MAX_RATIO * path.stat().st_size)
    return min(by_ratio, max(shutil.disk_usage(target).free - DISK_RESERVE_BYTES, 0))


def _write(path: Path, name: str, data: IO[bytes], num_bytes: int, target: Path) -> None:
    """Copies one member, no more of it than it declares."""
    file = target / name
    if not file.resolve().is_relative_to(target.resolve()):
        raise DataError(f"{path}: member {name[:200]!r} leads out of the archive's folder; the archive is refused")
    with explain_write_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        out = file.open("xb")
    with out:
        remaining = num_bytes
        while piece := data.read(_COPY_BYTES):
            remaining -= len(piece)
            if remaining < 0:
                raise DataError(
                    f"{path}: member {name[:200]!r} unpacks to more than the {num_bytes:,} bytes it declares"
                )
            with explain_write_errors(file):
                out.write(piece)


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: an archive that cannot be unpacked: {error}") from error
    except (ValueError, OSError, zlib.error, lzma.LZMAError) as error:  # damaged data, by its kind of compression
        raise DataError(f"{path}: an archive that cannot be unpacked: {error}") from error


def _borrowed(path: Path) -> UnpackedFolder:
    return UnpackedFolder(path, is_owner=False)


def _remove(path: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
