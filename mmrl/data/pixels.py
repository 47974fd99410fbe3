"""One rule that turns any image into the pixels that every part of mmrl sees: 8-bit RGB, upright.

1. The size is read from the header and refused beyond `MAX_PIXELS` or `MAX_ASPECT_RATIO`, before a pixel is decoded.
2. The whole image is decoded (a plain PNG inflated and checked, see `png`); of several frames, the first. A truncated
   or damaged file is refused, never zero-filled.
3. The EXIF orientation is applied.
4. 16-bit grey (modes I;16 and I) becomes 8-bit by round(value / 257), so that 65535 is 255.
5. Transparency of any kind is composited on white.
6. Every other mode is converted by Pillow; one that Pillow cannot convert, and floating point (F), is refused by name.

An image given as an 8-bit RGB JPEG or PNG without transparency and orientation keeps its bytes as they are; every
other one is stored as the PNG of its normalised pixels. So whatever lies in the store reads the same to any reader.
"""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mmrl.data.png import plain_png_size
from mmrl.errors import DataError, MmrlError

MAX_PIXELS = 89_478_485
"""Largest width x height that is decoded: 256 MiB as RGB. Pillow's own limit of twice this stays in force."""

MAX_ASPECT_RATIO = 200
"""Longest side over shortest that the reference resizing of Qwen's models accepts."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Formats that are tried, by content, never by name; JPEG includes the MPO of phones. None runs another program."""

_NO_IMAGES: dict[str, tuple[bytes, ...]] = {
    "an SVG drawing": (b"<svg",),
    "a PDF document": (b"%pdf",),
    "a web page (HTML), as a server sends it in place of an image": (b"<!doctype html", b"<html"),
    "XML": (b"<?xml",),
    "JSON": (b'{"', b"[{"),
    "a zip archive": (b"pk\x03\x04",),
    "a gzip file": (b"\x1f\x8b",),
    "a pointer of Git LFS; fetch the file itself with `git lfs pull`": (b"version https://git-lfs",),
    "a video (WebM)": (b"\x1aE\xdf\xa3".lower(),),
    "JPEG XL": (b"\xff\n", b"\x00\x00\x00\x0cjxl "),
    "a Photoshop file": (b"8bps",),
    "an icon (ICO)": (b"\x00\x00\x01\x00",),
}

_ADDRESS = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>")
_ORIENTATION_TAG = 0x0112


@dataclass(frozen=True)
class EncodedImage:
    """data: bytes of a JPEG or PNG that decodes to upright 8-bit RGB of this width and height in pixels."""

    data: bytes
    width: int
    height: int


def encode_image(image: Image.Image | bytes) -> EncodedImage:
    """The bytes to store for an image: its own where they are plain already, else the PNG of its normalised pixels.

    Raises DataError where the image is no image, damaged, too large or of a mode that has no rule.
    """
    if isinstance(image, Image.Image):
        with _refusing_damage(image):
            return _encode_png(normalise(image))
    size = plain_png_size(image, max_pixels=MAX_PIXELS)
    if size is not None and max(size) <= MAX_ASPECT_RATIO * min(size):
        return EncodedImage(image, *size)
    opened = _open(image)
    with _refusing_damage(opened):
        if _is_plain(opened):
            opened.load()
            return EncodedImage(image, opened.width, opened.height)
        return _encode_png(normalise(opened))


def normalise(image: Image.Image) -> Image.Image:
    """Decodes `image` whole and applies the rule above; mode RGB."""
    _check_size(image)
    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):
        return _from_16_bit(upright)
    if upright.mode == "F":
        raise DataError("an image of mode F (floating point) has no range of values; save it as 8-bit or 16-bit")
    if upright.has_transparency_data:
        return _on_white(upright)
    return upright.convert("RGB")


def _open(data: bytes) -> Image.Image:
    if not data:
        raise DataError("the image is empty (0 bytes)")
    if data[4:8] == b"ftyp":
        raise DataError(
            f"a HEIC or AVIF image (brand {data[8:12].decode('latin-1')!r}), which is not read; save it as JPEG or PNG "
            "(an iPhone takes JPEG with Settings, Camera, Formats, Most Compatible)"
        )
    try:
        opened = Image.open(io.BytesIO(data), formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise _too_large(data) from error
    except Exception as error:  # Pillow's decoders raise almost any type on damaged bytes
        raise DataError(f"{_what(data, error)}; allowed are {', '.join(FORMATS)}") from error
    _check_size(opened)
    return opened


@contextmanager
def _refusing_damage(image: Image.Image) -> Iterator[None]:
    try:
        yield
    except MmrlError:
        raise
    except Exception as error:  # as above
        raise DataError(f"the image of mode {image.mode} cannot be decoded whole: {_short(error)}") from error


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise DataError(_too_many_pixels(image.width, image.height))
    short, long = sorted((image.width, image.height))
    if short == 0:
        raise DataError(f"the image is {image.width}x{image.height}: it has no pixels")
    if long > MAX_ASPECT_RATIO * short:
        raise DataError(
            f"the image is {image.width}x{image.height}, an aspect ratio of {_upwards(long / short)}; "
            f"vision-language models take at most {MAX_ASPECT_RATIO}; crop or pad it"
        )


def _too_many_pixels(width: int, height: int) -> str:
    size = f"{width}x{height} = {width * height:,} pixels"
    return f"the image is {size}; at most {MAX_PIXELS:,} are decoded; make it smaller"


def _too_large(data: bytes) -> DataError:
    """The error for an image whose size Pillow refuses by itself; of a PNG the size is in its header."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return DataError(_too_many_pixels(width, height))
    return DataError(
        f"the image is too large; at most {MAX_PIXELS:,} pixels (width x height) are decoded; make it smaller"
    )


def _what(data: bytes, error: Exception) -> str:
    """What bytes that Pillow cannot open look like."""
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for kind, signs in _NO_IMAGES.items():
        if head.startswith(signs) or (kind == "an SVG drawing" and head.startswith(b"<?xml") and b"<svg" in head):
            return f"not an image that can be read: the bytes look like {kind}"
    if isinstance(error, UnidentifiedImageError):
        return f"not an image that can be read: {len(data):,} bytes that begin with {data[:8].hex(' ')}"
    return f"not an image that can be read ({_short(error)})"


def _upwards(ratio: float) -> str:
    """The ratio, never rounded down to the limit that it exceeds."""
    return f"{ratio:.0f}" if round(ratio) > MAX_ASPECT_RATIO else f"{math.ceil(ratio * 1000) / 1000:g}"


def _is_plain(image: Image.Image) -> bool:
    return (
        (image.format in ("JPEG", "MPO") or (image.format == "PNG" and getattr(image, "n_frames", 1) == 1))
        and image.mode == "RGB"
        and not image.has_transparency_data
        and image.getexif().get(_ORIENTATION_TAG, 1) == 1
    )


def _from_16_bit(image: Image.Image) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    lowest, highest = int(values.min()), int(values.max())
    if lowest < 0 or highest > 65535:
        raise DataError(f"an image of mode {image.mode} must hold values 0 to 65535 (got {lowest} to {highest})")
    grey = ((values + 128) // 257).astype(np.uint8)
    return Image.fromarray(grey).convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    coloured = image.convert("RGBA")
    white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, coloured).convert("RGB")


def _encode_png(image: Image.Image) -> EncodedImage:
    buffer = io.BytesIO()
    image.info = {}
    image.save(buffer, format="PNG")
    return EncodedImage(buffer.getvalue(), image.width, image.height)


def _short(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    return _ADDRESS.sub("the data", text)[:200]
