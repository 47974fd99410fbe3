"""What the model saw of an image: the size it was resized to, and the grid of its tokens.

Only the image processor's own settings are read, from the model's folder. `data.on_overlong: resize` may have shrunk
the images of a long prompt further; that was not kept.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from console.services.token_words import model_folders
from mmrl.config.run import ImageConfig
from mmrl.jobs.records import Job
from mmrl.rewards.vision.frames import resized_size
from mmrl.types import ImageRef

_FILES = ("preprocessor_config.json", "processor_config.json")
_SHOWN_SIDE = 1024
_GRID = (255, 255, 255, 150)


@dataclass(frozen=True)
class ProcessedSize:
    """width, height: in pixels, after resizing. side: of the square that a token sees, in pixels."""

    width: int
    height: int
    side: int

    @property
    def columns(self) -> int:
        return self.width // self.side

    @property
    def rows(self) -> int:
        return self.height // self.side

    @property
    def num_tokens(self) -> int:
        return self.columns * self.rows


@dataclass(frozen=True)
class PixelLimits:
    """side: both sides of an image become multiples of it. Areas are width x height in pixels."""

    side: int
    min_pixels: int
    max_pixels: int

    def size(self, image: ImageRef) -> ProcessedSize:
        width, height = resized_size(
            image.width, image.height, factor=self.side, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
        return ProcessedSize(max(self.side, width), max(self.side, height), self.side)


def pixel_limits(job: Job) -> PixelLimits | None:
    """The processor's own limits, narrowed by the run's; None where no image processor of the run's model is here, or
    one of the two is set in a way that is not known."""
    processor = _processor(job)
    if processor is None:
        return None
    try:
        return _limits(processor, _image_config(job))
    except (ValueError, TypeError, AttributeError):  # pydantic's errors are ValueErrors
        return None


def _image_config(job: Job) -> ImageConfig:
    """As the run was submitted; settings of another version of mmrl are no limits."""
    data = job.config.get("data") or {}
    given = data.get("image") if isinstance(data, Mapping) else None
    known = given if isinstance(given, Mapping) else {}
    return ImageConfig(**{name: known[name] for name in ImageConfig.model_fields if name in known})


def _limits(processor: Mapping[str, Any], config: ImageConfig) -> PixelLimits:
    size = processor.get("size") or {}
    lowest = size.get("shortest_edge") or processor.get("min_pixels") or config.min_pixels
    highest = size.get("longest_edge") or processor.get("max_pixels") or config.max_pixels
    side = int(processor["patch_size"]) * int(processor["merge_size"])
    return PixelLimits(side, max(int(lowest), config.min_pixels), min(int(highest), config.max_pixels))


def processed_view(path: Path, size: ProcessedSize, *, has_grid: bool = True) -> bytes:
    """The image as it was resized, as a PNG with the grid of its tokens over it; drawn large enough to be seen."""
    with Image.open(path, formats=("PNG", "JPEG")) as image:
        resized = image.convert("RGB").resize((size.width, size.height), Image.Resampling.BICUBIC)
    scale = max(1, min(8, _SHOWN_SIDE // max(size.width, size.height)))
    shown = resized.resize((size.width * scale, size.height * scale), Image.Resampling.NEAREST)
    if has_grid:
        _draw_grid(shown, size.side * scale)
    buffer = io.BytesIO()
    shown.save(buffer, format="PNG")
    return buffer.getvalue()


def _draw_grid(image: Image.Image, side: int) -> None:
    """White lines with dark ones beside them, so that they are seen on any image."""
    draw = ImageDraw.Draw(image, "RGBA")
    for offset, colour in ((0, _GRID), (1, (0, 0, 0, 110))):
        for x in range(side, image.width, side):
            draw.line(((x + offset, 0), (x + offset, image.height)), fill=colour)
        for y in range(side, image.height, side):
            draw.line(((0, y + offset), (image.width, y + offset)), fill=colour)


def _processor(job: Job) -> Mapping[str, Any] | None:
    for folder in model_folders(job):
        for name in _FILES:
            file = folder / name
            if file.is_file():
                found = _read(str(file), file.stat().st_mtime_ns)
                if found is not None:
                    return found
    return None


@lru_cache(maxsize=16)
def _read(path: str, _changed_at: int) -> Mapping[str, Any] | None:
    """The settings of an image processor of the Qwen kind; None for a file that holds none."""
    try:
        values = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    if isinstance(values, dict) and isinstance(values.get("image_processor"), dict):
        values = values["image_processor"]
    has_sides = isinstance(values, dict) and {"patch_size", "merge_size"} <= values.keys()
    return values if has_sides else None
