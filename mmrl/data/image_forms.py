"""The forms in which a row may give an image, each turned into encoded bytes or a PIL image.

bytes; a PIL image; {bytes, path}; a path relative to the data set's root; a data URI; base64.
Anything else is a problem of its row, never a row without image. Nothing outside the root and nothing on a network
is read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from PIL import Image

from mmrl.data.rows import RowProblem, describe

_ALLOWED = "bytes, {bytes, path}, a path relative to the data set, a data URI or base64"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):", re.ASCII)
_SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"P5", b"P6")


def resolve_image(value: Any, *, root: Path, field: str) -> bytes | Image.Image:
    """The image that `value` stands for. Raises RowProblem with the form that was got and those that are allowed."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, Mapping):
        return _from_object(value, root=root, field=field)
    if isinstance(value, str):
        return _from_text(value, root=root, field=field)
    if isinstance(value, list | tuple):
        raise RowProblem(field, f"a list inside the list of images; give one flat list of images ({_ALLOWED})")
    raise RowProblem(field, f"not an image: {describe(value)}; allowed are {_ALLOWED}")


def _from_object(value: Mapping[str, Any], *, root: Path, field: str) -> bytes | Image.Image:
    data, path = value.get("bytes"), value.get("path")
    if data is not None:
        if not isinstance(data, bytes | bytearray | memoryview | str):
            raise RowProblem(f"{field}.bytes", f"must be bytes or base64 text (got {describe(data)})")
        return _from_base64(data, field=f"{field}.bytes") if isinstance(data, str) else bytes(data)
    if isinstance(path, str):
        return _from_file(path, root=root, field=f"{field}.path")
    raise RowProblem(field, f"needs `bytes` or `path` (got {describe(value)}); allowed are {_ALLOWED}")


def _from_text(text: str, *, root: Path, field: str) -> bytes:
    if text.startswith("data:"):
        return _from_data_uri(text, field=field)
    if _looks_like_base64(text):
        return _from_base64(text, field=field)
    return _from_file(text, root=root, field=field)


def _from_data_uri(uri: str, *, field: str) -> bytes:
    header, comma, payload = uri.partition(",")
    media_type, *parameters = header.removeprefix("data:").split(";")
    if not comma or "base64" not in (parameter.strip().lower() for parameter in parameters):
        raise RowProblem(field, f"a data URI must read data:image/…;base64,… (got {describe(header)})")
    if media_type and not media_type.strip().lower().startswith("image/"):
        raise RowProblem(field, f"a data URI of type {media_type!r}; only image/… is an image")
    return _from_base64(payload, field=field)


def _from_base64(text: str, *, field: str) -> bytes:
    compact = "".join(text.split()).rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RowProblem(field, f"not valid base64: {error}") from error


def _looks_like_base64(text: str) -> bool:
    """Whether the text begins as the base64 of an image; a JPEG's begins with '/9j/', as if it were a path."""
    beginning = "".join(text[:64].split())[:24]
    if len(beginning) < 24:
        return False
    try:
        return base64.b64decode(beginning, validate=True).startswith(_SIGNATURES)
    except (binascii.Error, ValueError):
        return False


def _from_file(text: str, *, root: Path, field: str) -> bytes:
    path = _path_inside(text, root=root, field=field)
    try:
        if not path.is_file():
            raise RowProblem(field, f"no file {text!r} in the data set's folder {root}, and not base64 of an image")
        return path.read_bytes()
    except OSError as error:
        raise RowProblem(field, f"{describe(text)} cannot be read: {error.strerror or error}") from error


def _path_inside(text: str, *, root: Path, field: str) -> Path:
    scheme = _SCHEME.match(text)
    if scheme:
        raise RowProblem(
            field, f"{describe(text)} is an address ({scheme[1]}:), which is not read; put the file beside the data"
        )
    if not text or "\0" in text:
        raise RowProblem(field, f"not a path: {describe(text)}")
    if text.startswith(("/", "\\", "~")) or PureWindowsPath(text).drive:
        raise RowProblem(
            field, f"{describe(text)} is an absolute path; give it relative to the data set's folder {root}"
        )
    try:
        path = (root / text).resolve()
        inside = path.is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:
        raise RowProblem(field, f"{describe(text)} cannot be followed: {error}") from error
    if not inside:
        raise RowProblem(
            field, f"{describe(text)} leads out of the data set's folder {root}; only files inside are read"
        )
    return path
