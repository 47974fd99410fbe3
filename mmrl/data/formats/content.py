"""What a file is by its first bytes, whatever its name says: formats that are read, and those that never are."""

from __future__ import annotations

import io
import pickletools
from pathlib import Path
from typing import Literal

from mmrl.errors import DataError

Kind = Literal["parquet", "arrow_file", "arrow_stream", "zip", "tar", "gzip", "bzip2", "xz", "zstd", "other"]

PICKLE_SUFFIXES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".bin", ".npy", ".npz", ".joblib", ".dill")
HEAD_BYTES = 1024

_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow_file"),
    (b"\xff\xff\xff\xff", "arrow_stream"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_MAX_PICKLE_OPCODES = 20


def kind_of(path: Path) -> Kind:
    """The kind of a file by its content. Raises DataError for a pickle in any disguise, which is never read.

    Pickles, PyTorch checkpoints, NumPy arrays (they may hold pickles) and joblib files run code when they are loaded.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    refuse_pickle(head, path)
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), "other")


def refuse_pickle(head: bytes, path: Path) -> None:
    """Raises DataError if the first bytes of a file are those of a pickle or of an array that may hold one."""
    if head.startswith(b"\x93NUMPY"):
        raise DataError(f"{path}: a NumPy array by its content, which may hold a pickle and is not read; {_ADVICE}")
    if _is_pickle(head):
        raise DataError(
            f"{path}: a pickle by its content, which runs code when it is loaded and is not read; {_ADVICE}"
        )


def refuse_pickle_name(path: Path) -> None:
    """Raises DataError for a file whose name says that it is a pickle."""
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise DataError(
            f"{path}: files that end in {path.suffix!r} are pickles or may hold one and are not read; {_ADVICE}"
        )


_ADVICE = "save the rows as jsonl or parquet instead"


def _is_pickle(head: bytes) -> bool:
    """Binary pickles begin with their protocol; the older text protocols are told by their first operations."""
    if len(head) >= 2 and head[0] == 0x80:
        return head[1] <= 10
    if not head[:1] or head[:1] not in b"(cil]}d":
        return False
    return _text_pickle(head)


def _text_pickle(head: bytes) -> bool:
    """Whether the bytes read as pickle operations that build objects; ordinary text fails within a few of them."""
    names: list[str] = []
    try:
        for opcode, _, _ in pickletools.genops(io.BytesIO(head)):
            names.append(opcode.name)
            if opcode.name == "STOP" or len(names) >= _MAX_PICKLE_OPCODES:
                break
    except Exception:  # pickletools raises any of several types on what is no pickle; operations read so far count
        pass
    return len(names) > 2 and bool({"GLOBAL", "INST", "STOP", "REDUCE", "BUILD"} & set(names))
