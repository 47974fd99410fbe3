"""A folder with a subfolder of images for each class: each image is a row whose answer is its class.

The question names the classes; `--map 'prompt="…"'` puts another in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mmrl.data.rows import RawRow, RowError
from mmrl.errors import DataError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".heic", ".heif", ".avif")
MAX_CLASSES = 1000


def is_class_folder(folder: Path) -> bool:
    """Whether the folder holds subfolders only, at least two, and each of them holds images and nothing else."""
    entries = _visible(folder)
    return len(entries) >= 2 and all(entry.is_dir() and _holds_images_only(entry) for entry in entries)


def read(folder: Path) -> Iterator[RawRow | RowError]:
    classes = _visible(folder)
    if len(classes) > MAX_CLASSES:
        raise DataError(f"{folder} has {len(classes)} classes; more than {MAX_CLASSES} make no question, so write rows")
    names = ", ".join(entry.name for entry in classes)
    number = 0
    for entry in classes:
        for image in _visible(entry):
            number += 1
            values = {
                "prompt": f"<image>\nWhich of these does the image show: {names}?",
                "images": [f"{entry.name}/{image.name}"],
                "answer": entry.name,
            }
            yield RawRow(number, values, folder.name)


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _holds_images_only(folder: Path) -> bool:
    entries = _visible(folder)
    return bool(entries) and all(entry.is_file() and entry.suffix.lower() in IMAGE_SUFFIXES for entry in entries)
