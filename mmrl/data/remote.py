"""Data sets in object stores: fetched whole into a temporary folder, then read like any file or folder."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from mmrl.data.archives import DISK_RESERVE_BYTES, UnpackedFolder
from mmrl.errors import DataError, MmrlError, NotFoundError

SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Stores that fsspec knows a library for; credentials come from the environment, as that library reads them."""

_FOLDER = "fetched"


def is_remote_address(text: str) -> bool:
    """Whether a path is that of an object store, such as s3://bucket/data.zip."""
    scheme, found, _ = text.partition("://")
    return bool(found) and scheme in SCHEMES


def fetch(address: str) -> tuple[Path, UnpackedFolder]:
    """A copy of the file, or of the folder, at an address, and what keeps it as long as it is referred to.

    Raises DataError for an address without a path, for a store whose library is missing and for more than the disk
    holds, NotFoundError where nothing is there, MmrlError where the store does not answer.
    """
    store, root = _open(address)
    try:
        sizes = _sizes(store, root)
    except FileNotFoundError:
        sizes = {}
    except Exception as error:  # each store's library has errors of its own
        raise _not_read(address, error) from error
    if not sizes:
        raise NotFoundError(f"{address} holds nothing, or may not be listed; look at its spelling and your credentials")
    temporary = Path(tempfile.mkdtemp(prefix="mmrl-fetched-"))
    folder = temporary / _FOLDER
    folder.mkdir()
    kept = UnpackedFolder(folder)
    _check_room(address, sum(sizes.values()), temporary)
    for name in sizes:
        target = _target(folder, name, root, address)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            store.get_file(name, str(target))
        except Exception as error:
            raise _not_read(address, error) from error
    is_file = list(sizes) == [root]
    return (folder / Path(root).name if is_file else folder), kept


def _open(address: str) -> tuple[Any, str]:
    import fsspec

    try:
        store, root = fsspec.core.url_to_fs(address)
    except ImportError as error:
        raise DataError(
            f"{address}: no library for this store is installed ({error}); `pip install 'mmrl[s3]'` for s3"
        ) from error
    root = str(root).rstrip("/")
    if "/" not in root:
        raise DataError(f"{address} names a whole bucket; name a file or a folder in it, such as {address}/data.zip")
    return store, root


def _sizes(store: Any, root: str) -> dict[str, int]:
    """Bytes of the file, or of each file below the folder."""
    if store.isfile(root):
        return {root: int(store.size(root) or 0)}
    found = store.find(root, detail=True)
    return {name: int(info.get("size") or 0) for name, info in found.items() if not name.endswith("/")}


def _target(folder: Path, name: str, root: str, address: str) -> Path:
    """Keys of a store may hold anything; those that are no plain relative path are refused."""
    relative = Path(name).name if name == root else name[len(root) + 1 :]
    parts = relative.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in relative:
        raise DataError(f"{address}: the key {name!r} is no plain path; rename it")
    return folder.joinpath(*parts)


def _check_room(address: str, num_bytes: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free - DISK_RESERVE_BYTES
    if num_bytes > free:
        raise DataError(
            f"{address} has {num_bytes / 2**30:.1f} GiB, and {max(free, 0) / 2**30:.1f} GiB are free for it; free some "
            "space, or set TMPDIR to a larger disk"
        )


def _not_read(address: str, error: Exception) -> MmrlError:
    from mmrl.config.secrets import redact

    text = " ".join(str(error).split())[:300] or type(error).__name__
    return MmrlError(
        f"{address} cannot be read: {redact(text)}; look at its spelling, the network and your credentials"
    )
