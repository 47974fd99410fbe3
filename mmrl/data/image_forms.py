"""The forms in which a row may give an image, each turned into encoded bytes or a PIL image.

bytes; a PIL image; {bytes, path}; a path relative to the data set's root; a data URI; base64.
Anything else is a problem of its row, never a row without image. Nothing outside the root and nothing on a network
is read, except where `ReadOptions` allows a folder or a host.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any
from urllib.parse import unquote, urlsplit

from PIL import Image

from mmrl.data.network import NetworkRefusal, fetch
from mmrl.data.options import ReadOptions
from mmrl.data.rows import RowProblem, describe

MAX_FILE_BYTES = 256 * 2**20
"""Largest image file that is read."""

_ALLOWED = "bytes, {bytes, path}, a path relative to the data set, a data URI or base64"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):", re.ASCII)
_SIGNATURES = (b"\x89PNG", b"\xff\xd8\xff", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"P5", b"P6")
_TEXT_KEYS = ("path", "image", "url", "image_url")


def resolve_image(value: Any, *, root: Path, field: str, options: ReadOptions) -> bytes | Image.Image:
    """The image that `value` stands for. Raises RowProblem with the form that was got and those that are allowed."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Image.Image):
        return value
    if isinstance(value, Mapping):
        return _from_object(value, root=root, field=field, options=options)
    if isinstance(value, str):
        return _from_text(value, root=root, field=field, options=options)
    if isinstance(value, list | tuple):
        raise RowProblem(field, f"a list inside the list of images; give one flat list of images ({_ALLOWED})")
    raise RowProblem(field, f"not an image: {describe(value)}; allowed are {_ALLOWED}")


def _from_object(value: Mapping[str, Any], *, root: Path, field: str, options: ReadOptions) -> bytes | Image.Image:
    data = value.get("bytes")
    if data is not None:
        if not isinstance(data, bytes | bytearray | memoryview | str):
            raise RowProblem(f"{field}.bytes", f"must be bytes or base64 text (got {describe(data)})")
        return _from_base64(data, field=f"{field}.bytes") if isinstance(data, str) else bytes(data)
    for key in _TEXT_KEYS:
        if isinstance(inner := value.get(key), str):
            return _from_text(inner, root=root, field=f"{field}.{key}", options=options)
    if isinstance(inner := value.get("image"), bytes | Image.Image):
        return inner
    raise RowProblem(field, f"needs `bytes` or `path` (got {describe(value)}); allowed are {_ALLOWED}")


def _from_text(text: str, *, root: Path, field: str, options: ReadOptions) -> bytes:
    if text[:5].lower() == "data:":
        return _from_data_uri(text, field=field)
    if _looks_like_base64(text):
        return _from_base64(text, field=field)
    if text.startswith(("http://", "https://")) and options.hosts:
        return _from_network(text, field=field, options=options)
    return _from_file(_path_inside(text, root=root, field=field, options=options), text, root=root, field=field)


def _from_data_uri(uri: str, *, field: str) -> bytes:
    header, comma, payload = uri.partition(",")
    media_type, *parameters = header[5:].split(";")
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
        decoded = base64.b64decode(beginning, validate=True)
    except (binascii.Error, ValueError):
        return False
    return decoded.startswith(_SIGNATURES) or decoded[4:8] == b"ftyp"


def _from_network(url: str, *, field: str, options: ReadOptions) -> bytes:
    try:
        return fetch(url, hosts=options.hosts, timeout_s=options.timeout_s, max_bytes=options.max_bytes)
    except NetworkRefusal as error:
        raise RowProblem(field, f"{describe(url)} {error}") from error


def _from_file(path: Path, text: str, *, root: Path, field: str) -> bytes:
    try:
        if not path.is_file():
            hint = _list_hint(text)
            raise RowProblem(
                field, f"no file {describe(text)} in the data set's folder {root}, and not base64 of an image{hint}"
            )
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise RowProblem(field, f"{describe(text)} has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
        return path.read_bytes()
    except OSError as error:
        raise RowProblem(field, f"{describe(text)} cannot be read: {error.strerror or error}") from error


def _list_hint(text: str) -> str:
    """What to write in place of a text that stands for several paths."""
    names = [name.strip(" '\"") for name in text.strip("[] ").replace(";", ",").replace("|", ",").split(",")]
    if len(names) < 2 and not text.startswith("["):
        return ""
    return f"; write several images as a JSON list: {json.dumps(names, ensure_ascii=False)}"


def _path_inside(text: str, *, root: Path, field: str, options: ReadOptions) -> Path:
    """The path, links followed, if it lies in the data set's folder or in one that was allowed."""
    name = _local_name(text, root=root, field=field, options=options)
    try:
        path = (root / name).resolve()
        inside = any(path.is_relative_to(folder.resolve()) for folder in (root, *options.roots))
    except (OSError, RuntimeError) as error:
        raise RowProblem(field, f"{describe(text)} cannot be followed: {error}") from error
    if not inside:
        raise RowProblem(
            field,
            f"{describe(text)} leads out of the data set's folder {root}; only files inside are read, and those in "
            "folders given with --allow-root",
        )
    return path


def _local_name(text: str, *, root: Path, field: str, options: ReadOptions) -> str:
    """The text as a path. Raises RowProblem for an address, and for an absolute path unless folders are allowed."""
    if text.startswith("file://") and options.roots and urlsplit(text).netloc in ("", "localhost"):
        text = unquote(urlsplit(text).path)
    scheme = _SCHEME.match(text)
    if scheme:
        raise RowProblem(
            field,
            f"{describe(text)} is an address ({scheme[1]}:), which is not read; put the file beside the data, or allow "
            f"its {'folder with --allow-root' if scheme[1] == 'file' else 'host with --allow-network'}",
        )
    if not text or "\0" in text:
        raise RowProblem(field, f"not a path: {describe(text)}")
    is_absolute = text.startswith(("/", "\\", "~")) or bool(PureWindowsPath(text).drive)
    if is_absolute and not (options.roots and text.startswith("/")):
        raise RowProblem(
            field,
            f"{describe(text)} is an absolute path; give it relative to the data set's folder {root}, or allow its "
            "folder with --allow-root",
        )
    return text
