"""The image store and the one rule of pixels."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
from data_files import RED, encoded, png_of_declared_size, red_png
from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from mmrl.data.images import ImageStore, images_aside, inspect_image
from mmrl.data.pixels import MAX_PIXELS
from mmrl.errors import DataError, MmrlError, NotFoundError
from mmrl.types import ImageRef


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "images")


def stored_pixels(store: ImageStore, image: Image.Image | bytes) -> np.ndarray:
    opened = store.open(store.add(image))
    assert opened.mode == "RGB"
    return np.asarray(opened)


def files_in(store: ImageStore) -> list[Path]:
    return [path for path in store.root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_plain_rgb_file_keeps_its_bytes_and_is_named_by_their_hash(store: ImageStore, format: str) -> None:
    data = encoded(Image.new("RGB", (6, 4), RED), format)
    reference = store.add(data)
    assert reference == ImageRef(hashlib.sha256(data).hexdigest(), 6, 4)
    assert store.path(reference).read_bytes() == store.read(reference.sha256) == data


def test_same_image_is_stored_once(store: ImageStore) -> None:
    assert store.add(red_png()) == store.add(red_png())
    assert len(files_in(store)) == 1


def test_inspection_gives_the_same_reference_and_writes_nothing(store: ImageStore) -> None:
    grey = Image.new("L", (5, 3), 7)
    assert inspect_image(grey) == store.add(grey)
    assert inspect_image(red_png(8)).width == 8
    assert len(files_in(store)) == 1


def test_d09_transparent_black_background_becomes_white(store: ImageStore) -> None:
    image = Image.new("RGBA", (64, 64), (0, 0, 0, 0))
    ImageDraw.Draw(image).rectangle((20, 10, 40, 20), fill=(0, 0, 0, 255))
    pixels = stored_pixels(store, encoded(image))
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[15, 30].tolist() == [0, 0, 0]
    assert (pixels == stored_pixels(store, image)).all()


def test_half_transparent_red_is_composited_on_white(store: ImageStore) -> None:
    pixels = stored_pixels(store, Image.new("RGBA", (2, 2), (255, 0, 0, 128)))
    assert pixels[0, 0].tolist() == [255, 127, 127]


def test_d10_palette_with_byte_transparency_is_composited_on_white(store: ImageStore) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    pixels = stored_pixels(store, encoded(image, transparency=b"\x00\xff"))
    assert pixels.tolist() == [[[255, 255, 255], [40, 50, 60]]]


def test_rgb_png_with_a_transparent_colour_is_composited_on_white(store: ImageStore) -> None:
    pixels = stored_pixels(store, encoded(Image.new("RGB", (2, 2), RED), transparency=RED))
    assert pixels[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, [255, 255, 255]),
        ("L", 77, [77, 77, 77]),
        ("LA", (77, 255), [77, 77, 77]),
        ("CMYK", (0, 255, 255, 0), [255, 0, 0]),
        ("RGBX", (1, 2, 3, 0), [1, 2, 3]),
        ("HSV", (0, 255, 255), [255, 0, 0]),
        ("I;16", 65535, [255, 255, 255]),
        ("I;16", 32896, [128, 128, 128]),
        ("I", 257, [1, 1, 1]),
    ],
)
def test_d10_every_mode_becomes_8_bit_rgb(
    store: ImageStore, mode: str, colour: int | tuple[int, ...], expected: list[int]
) -> None:
    assert stored_pixels(store, Image.new(mode, (64, 64), colour))[63, 63].tolist() == expected


def test_d10_16_bit_png_file_is_scaled_and_not_flattened(store: ImageStore) -> None:
    values = np.array([[0, 257, 25700, 65535]], dtype=np.uint16)
    pixels = stored_pixels(store, encoded(Image.fromarray(values)))
    assert pixels[0, :, 0].tolist() == [0, 1, 100, 255]


@pytest.mark.parametrize(("mode", "what"), [("F", "mode F"), ("La", "mode La")])
def test_d10_mode_without_a_rule_is_refused_by_name(store: ImageStore, mode: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        store.add(Image.new(mode, (4, 4)))


def test_32_bit_values_beyond_16_bit_are_refused(store: ImageStore) -> None:
    with pytest.raises(DataError, match=r"0 to 65535 \(got 70000 to 70000\)"):
        store.add(Image.new("I", (2, 2), 70000))


def test_exif_orientation_is_applied(store: ImageStore) -> None:
    image = Image.new("RGB", (4, 2), "white")
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned a quarter clockwise
    reference = store.add(encoded(image, "PNG", exif=exif))
    assert (reference.width, reference.height) == (2, 4)
    assert store.open(reference).getpixel((1, 0)) == RED
    assert 0x0112 not in store.open(reference).getexif()


def test_animation_gives_its_first_frame(store: ImageStore) -> None:
    frames = [Image.new("RGB", (3, 3), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert stored_pixels(store, data)[0, 0].tolist() == list(RED)


def test_d13_truncated_jpeg_is_refused_and_nothing_is_stored(store: ImageStore) -> None:
    noise = np.random.RandomState(0).randint(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), "JPEG")
    with pytest.raises(DataError, match=r"cannot be decoded whole: .*truncated"):
        store.add(data[: len(data) * 6 // 10])
    assert not store.root.exists()


def test_d12_oversized_compressed_metadata_is_refused(store: ImageStore) -> None:
    info = PngInfo()
    info.add_text("comment", "x" * 2_000_000, zip=True)
    with pytest.raises(DataError, match=r"Decompressed data too large"):
        store.add(encoded(Image.new("RGB", (8, 8)), pnginfo=info))


@pytest.mark.parametrize("side", [20_000, 12_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_d11_decompression_bomb_is_refused_from_its_header(store: ImageStore, side: int) -> None:
    limit = Image.MAX_IMAGE_PIXELS
    with pytest.raises(DataError, match=r"too large|at most 89,478,485"):
        store.add(png_of_declared_size(side, side))
    assert limit == MAX_PIXELS == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "empty"), (b"hello", "not an image"), (b"%!PS-Adobe-3.0 EPSF-3.0\n", "not an image")],
)
def test_what_is_no_image_is_refused(store: ImageStore, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        store.add(data)


def test_v02_one_pixel_high_image_keeps_its_shape(store: ImageStore) -> None:
    assert stored_pixels(store, Image.new("RGB", (100, 1))).shape == (1, 100, 3)
    assert stored_pixels(store, Image.new("RGB", (1, 1))).shape == (1, 1, 3)


def test_opening_gives_a_copy_of_the_callers_own(store: ImageStore) -> None:
    reference = store.add(red_png())
    store.open(reference).putpixel((0, 0), (0, 0, 0))
    assert store.open(reference).getpixel((0, 0)) == RED


def test_missing_image_is_named(store: ImageStore) -> None:
    with pytest.raises(NotFoundError, match=r"a{64} is not in the image store"):
        store.open(ImageRef("a" * 64, 1, 1))


@pytest.mark.parametrize("sha256", ["", "../../etc/passwd", "A" * 64])
def test_only_a_hash_names_a_file(store: ImageStore, sha256: str) -> None:
    with pytest.raises(DataError, match=r"not the SHA-256"):
        store.path(sha256)


def test_half_written_file_is_replaced(store: ImageStore) -> None:
    reference = store.add(red_png())
    store.path(reference).write_bytes(b"")
    store.add(red_png())
    assert store.open(reference).getpixel((0, 0)) == RED


def test_full_disk_is_one_clear_error_and_leaves_nothing(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(MmrlError, match=r"cannot write .*No space left on device; free some space"):
        store.add(red_png())
    assert files_in(store) == []


def test_stored_file_reads_the_same_to_any_reader(store: ImageStore) -> None:
    reference = store.add(Image.new("CMYK", (4, 4), (0, 255, 255, 0)))
    with Image.open(io.BytesIO(store.path(reference).read_bytes())) as image:
        assert (image.format, image.mode, image.getpixel((0, 0))) == ("PNG", "RGB", RED)


def test_v03_an_image_of_more_than_two_hundred_to_one_is_refused_with_its_ratio(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    assert store.add(Image.new("RGB", (200, 1))).width == 200
    with pytest.raises(DataError, match="201x1, an aspect ratio of 201"):
        store.add(Image.new("RGB", (201, 1)))


def test_images_aside_are_gone_afterwards_and_stored_ones_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    stored = ImageStore().add(Image.new("RGB", (4, 3), "red"))
    before = sorted(tmp_path.rglob("*"))
    with images_aside():
        store = ImageStore()
        new = store.add(Image.new("RGB", (4, 3), "blue"))
        assert store.open(new).getpixel((0, 0)) == (0, 0, 255)
        assert ImageStore().open(stored).getpixel((0, 0)) == (255, 0, 0)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(NotFoundError):
        ImageStore().read(new)
