"""Small copies of images for previews, made when first asked for and kept beside the image store."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from mmrl.config.base import home
from mmrl.data.files import write_bytes
from mmrl.data.images import ImageStore
from mmrl.errors import DataError
from mmrl.types import ImageRef

SIDES = (64, 128, 256, 512)
"""Longest sides in pixels that thumbnails come in; few, so that few are kept."""


def thumbnail(image: ImageRef, *, side: int = 256, store: ImageStore | None = None, root: Path | None = None) -> Path:
    """The file of a thumbnail: a JPEG that fits `side` x `side` pixels, never larger than the image.

    root: where thumbnails lie (default: `thumbnails` in mmrl's home), each named by its image's SHA-256 and its side. A
    missing one is made and takes its name when whole. Raises DataError for another side than those in SIDES,
    NotFoundError where the store lacks the image.
    """
    if side not in SIDES:
        raise DataError(f"thumbnails come in sides of {', '.join(map(str, SIDES))} pixels (got {side}); choose one")
    store = store if store is not None else ImageStore()
    root = root if root is not None else home() / "thumbnails"
    path = root / str(side) / image.sha256[:2] / f"{store.path(image).name}.jpg"
    if not path.is_file():
        write_bytes(path, _shrunk(store.open(image), side))
    return path


def thumbnail_of(path: Path, sha256: str, *, side: int = 256, root: Path | None = None) -> Path:
    """The same of an image that lies somewhere else, such as in a run directory. Raises OSError where it does not."""
    target = (root if root is not None else home() / "thumbnails") / str(side) / sha256[:2] / f"{sha256}.jpg"
    if not target.is_file():
        with Image.open(path, formats=("PNG", "JPEG")) as image:
            write_bytes(target, _shrunk(image.convert("RGB"), side))
    return target


def _shrunk(image: Image.Image, side: int) -> bytes:
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=85)
    return buffer.getvalue()
