"""Plain PNGs are checked without Pillow; what is taken so, Pillow decodes to the same size and mode."""

from __future__ import annotations

import io
import random
import struct
import zlib

import numpy as np
import pytest
from data_files import encoded
from PIL import Image, PngImagePlugin

from mmrl.data.pixels import MAX_PIXELS, encode_image
from mmrl.data.png import plain_png_size
from mmrl.errors import DataError


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def size_of(data: bytes) -> tuple[int, int] | None:
    return plain_png_size(data, max_pixels=MAX_PIXELS)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes, *extra: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + b"".join(extra)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("size", [(1, 1), (17, 300), (256, 256)])
def test_a_plain_png_is_taken_as_it_is(size: tuple[int, int]) -> None:
    data = encoded(noise(*size), dpi=(72, 72))
    assert size_of(data) == size
    assert encode_image(data).data == data


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_other_modes_are_left_to_pillow(mode: str) -> None:
    assert size_of(encoded(noise(9, 9, mode))) is None


def test_text_orientation_transparency_and_other_formats_are_left_to_pillow() -> None:
    image, text = noise(9, 9), PngImagePlugin.PngInfo()
    text.add_text("a", "b")
    exif = Image.Exif()
    exif[0x0112] = 6
    for data in (
        encoded(image, pnginfo=text),
        encoded(image, exif=exif),
        encoded(image, transparency=(1, 2, 3)),
        encoded(image, format="JPEG"),
        b"",
        b"\x89PNG\r\n\x1a\n",
    ):
        assert size_of(data) is None


def test_each_way_in_which_pixel_data_can_be_wrong_is_seen() -> None:
    good = b"\0" + b"abc" * 2
    assert size_of(png(2, 2, good * 2)) == (2, 2)
    assert size_of(png(2, 2, good)) is None, "a row is missing"
    assert size_of(png(2, 2, good * 3)) is None, "a row too many"
    assert size_of(png(2, 2, good + b"\5" + b"abc" * 2)) is None, "no such filter"
    assert size_of(png(2, 2, good * 2)[:-20]) is None, "cut off"
    assert size_of(png(2, 2, good * 2, chunk(b"gAMA", b"abc"))) is None, "a chunk of another length"
    assert size_of(png(2, 2, good * 2).replace(b"IDAT", b"IDAU")) is None, "a checksum that is wrong"
    assert plain_png_size(png(2, 2, good * 2), max_pixels=3) is None


def test_a_bomb_is_inflated_no_further_than_its_header_says() -> None:
    assert size_of(png(2, 2, b"\0" * 100_000_000)) is None


def test_whatever_is_taken_pillow_decodes_alike() -> None:
    draw = random.Random(0)
    originals = [encoded(noise(width, 7)) for width in (1, 5, 40)]
    num_taken = 0
    for number in range(3000):
        data = bytearray(originals[number % 3])
        for _ in range(draw.randint(0, 2)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        if draw.random() < 0.2:
            data += b"behind the end"
        size = size_of(bytes(data))
        if size is None:
            continue
        num_taken += 1
        with Image.open(io.BytesIO(bytes(data))) as image:
            image.load()
            assert (image.mode, image.size, image.has_transparency_data) == ("RGB", size, False)
    assert num_taken > 500


def test_a_damaged_png_is_refused_with_a_reason() -> None:
    data = bytearray(encoded(noise(40, 40)))
    data[len(data) // 2] ^= 255
    with pytest.raises(DataError, match=r"cannot be decoded whole|not an image that can be read"):
        encode_image(bytes(data))
