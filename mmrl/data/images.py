"""The image store: a folder of images named by the SHA-256 of their bytes, each 8-bit RGB and upright.

What is stored is decided in `mmrl.data.pixels`; here it is written once, found again and opened.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from mmrl.config.base import home
from mmrl.data.files import write_bytes
from mmrl.data.pixels import EncodedImage, encode_image
from mmrl.errors import DataError, NotFoundError
from mmrl.types import ImageRef

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ASIDE = "MMRL_IMAGES_ASIDE"


def inspect_image(image: Image.Image | bytes) -> ImageRef:
    """What `ImageStore.add` would return, with the same checks, writing nothing."""
    return _reference(encode_image(image))


@contextmanager
def images_aside() -> Iterator[None]:
    """New images of mmrl's own store go into a folder that is gone afterwards, here and in processes started within;
    those that are stored already are found as ever."""
    with tempfile.TemporaryDirectory(prefix="mmrl-images-", ignore_cleanup_errors=True) as folder:
        before = os.environ.get(_ASIDE)
        os.environ[_ASIDE] = folder
        try:
            yield
        finally:
            os.environ.pop(_ASIDE) if before is None else os.environ.update({_ASIDE: before})


class ImageStore:
    """Content-addressed images under `root` (default: `images` in mmrl's home). Safe to share between processes."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = root if root is not None else home() / "images"
        aside = os.environ.get(_ASIDE) if root is None else None
        self._aside = Path(aside) if aside else None

    def add(self, image: Image.Image | bytes) -> ImageRef:
        """Decodes the image whole, normalises it and stores it, unless it is there already.

        Raises DataError for an image that is damaged, too large or of an unknown kind; MmrlError when it cannot be
        written.
        """
        encoded = encode_image(image)
        reference = _reference(encoded)
        if _size_of(self._path_of(reference.sha256)) != len(encoded.data):
            write_bytes(_path_in(self._aside or self.root, reference.sha256), encoded.data)
        return reference

    def open(self, reference: ImageRef) -> Image.Image:
        """The image as mode RGB, decoded; the caller's own copy."""
        data = self.read(reference)
        image = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
        image.load()
        if image.size != (reference.width, reference.height):
            raise DataError(
                f"image {reference.sha256} in {self.root} is {image.width}x{image.height}, "
                f"its reference says {reference.width}x{reference.height}; register its data set again"
            )
        return image

    def read(self, reference: ImageRef | str) -> bytes:
        """The stored bytes, a JPEG or PNG."""
        path = self.path(reference)
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(
                f"image {path.name} is not in the image store {self.root}; add the data set that it belongs to again"
            ) from error

    def path(self, reference: ImageRef | str) -> Path:
        """Where the image of this reference or SHA-256 lies; whether it is there is not checked."""
        sha256 = reference.sha256 if isinstance(reference, ImageRef) else reference
        if not _SHA256.fullmatch(sha256):
            raise DataError(f"not the SHA-256 of an image: {sha256!r}; it has 64 characters 0-9 and a-f")
        return Path(self._path_of(sha256))

    def _path_of(self, sha256: str) -> str:
        """In the folder aside, where one is and has it; else under the root."""
        if self._aside is not None and _size_of(path := _path_in(self._aside, sha256)) is not None:
            return path
        return _path_in(self.root, sha256)


def _path_in(root: Path, sha256: str) -> str:
    return f"{root}/{sha256[:2]}/{sha256}"


def _reference(encoded: EncodedImage) -> ImageRef:
    return ImageRef(hashlib.sha256(encoded.data).hexdigest(), encoded.width, encoded.height)


def _size_of(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None
