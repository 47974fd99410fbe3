"""From an image in the store to the patches that a vision tower takes. The one place where images are resized.

The size comes from qwen-vl-utils' `smart_resize`, the resampling is Pillow's bicubic as in its `fetch_image`, and the
model's own image processor normalises and cuts into patches, with its resizing switched off.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image
from qwen_vl_utils.vision_process import MAX_RATIO, smart_resize
from torch import Tensor

from mmrl.batch import PreparedImage, pixels_of
from mmrl.config.run import ImageConfig
from mmrl.data.images import ImageStore
from mmrl.errors import DataError, ModelError
from mmrl.types import ImageRef

DEFAULT_CACHE_BYTES = 1 << 30


@dataclass(frozen=True)
class ImageLimits:
    """factor: both sides become multiples of it, in pixels (patch times merge). Areas are width x height in pixels."""

    factor: int
    min_pixels: int
    max_pixels: int

    def below(self, max_pixels: int) -> ImageLimits:
        """The same with at most `max_pixels`, but never fewer than one token and never above the limits' own bound."""
        bound = max(self.factor**2, min(self.max_pixels, max_pixels))
        return ImageLimits(self.factor, min(self.min_pixels, bound), bound)

    def size(self, image: ImageRef) -> tuple[int, int]:
        """(width, height) to which an image is resized. Raises DataError where a side is over 200 times the other."""
        width, height = image.width, image.height
        if max(width, height) > MAX_RATIO * min(width, height):
            raise DataError(
                f"image {image.sha256[:12]} of {width}x{height} pixels has an aspect ratio of "
                f"{max(width, height) / min(width, height):.1f}; at most {MAX_RATIO} is allowed: crop or drop it"
            )
        resized = smart_resize(height, width, self.factor, self.min_pixels, self.max_pixels)
        # smart_resize rounds a narrow image's short side down to 0 when it shrinks the long one.
        return max(self.factor, resized[1]), max(self.factor, resized[0])

    def num_tokens(self, image: ImageRef) -> int:
        """Placeholder tokens that the image takes in a prompt."""
        width, height = self.size(image)
        return (width // self.factor) * (height // self.factor)


def limits_of(image_processor: Any, config: ImageConfig) -> ImageLimits:
    """The processor's own limits, narrowed by the config's."""
    size = image_processor.size
    lowest, highest = size["shortest_edge"], size["longest_edge"]
    limits = ImageLimits(
        factor=image_processor.patch_size * image_processor.merge_size,
        min_pixels=max(lowest, config.min_pixels),
        max_pixels=min(highest, config.max_pixels),
    )
    if limits.min_pixels > limits.max_pixels:
        raise ModelError(
            f"data.image: {config.min_pixels} to {config.max_pixels} pixels leaves nothing of what the model's image "
            f"processor takes, {lowest} to {highest} pixels; choose limits that overlap with these"
        )
    return limits


class ImagePreparer:
    """Images of a store as `PreparedImage`s; the most recently used are kept, up to `cache_bytes` of pixel values."""

    def __init__(
        self, image_processor: Any, store: ImageStore, limits: ImageLimits, *, cache_bytes: int = DEFAULT_CACHE_BYTES
    ) -> None:
        self.limits = limits
        self._processor = image_processor
        self._store = store
        self._cache: OrderedDict[tuple[str, tuple[int, int]], PreparedImage] = OrderedDict()
        self._free_bytes = cache_bytes
        self._lock = threading.Lock()

    def prepare(self, image: ImageRef, limits: ImageLimits | None = None) -> PreparedImage:
        return self.fill(self.sketch(image, limits))

    def sketch(self, image: ImageRef, limits: ImageLimits | None = None) -> PreparedImage:
        """All but the pixels; opens no file."""
        limits = limits or self.limits
        width, height = limits.size(image)
        patch = self._processor.patch_size
        return PreparedImage(
            reference=image,
            pixel_values=None,
            grid_thw=(1, height // patch, width // patch),
            num_tokens=limits.num_tokens(image),
            processed_size=(width, height),
        )

    def fill(self, image: PreparedImage) -> PreparedImage:
        """The image with its pixels. Raises DataError where the store cannot give it."""
        if image.pixel_values is not None:
            return image
        key = (image.sha256, image.processed_size)
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        filled = replace(image, pixel_values=self._pixel_values(image))
        with self._lock:
            self._keep(key, filled)
        return filled

    def resized(self, image: PreparedImage) -> Image.Image:
        """The 8-bit RGB picture of which the patches are cut."""
        width, height = image.processed_size
        return self._store.open(image.reference).resize((width, height))

    def _pixel_values(self, image: PreparedImage) -> Tensor:
        output = self._processor(images=[self.resized(image)], do_resize=False, return_tensors="pt")
        grid = tuple(output["image_grid_thw"][0].tolist())
        assert grid == image.grid_thw, f"the image processor cuts {grid} patches of {image}"
        return output["pixel_values"].to(torch.float32)

    def _keep(self, key: tuple[str, tuple[int, int]], filled: PreparedImage) -> None:
        if key in self._cache:
            return
        self._cache[key] = filled
        self._free_bytes -= pixels_of(filled).nbytes
        while self._free_bytes < 0 and self._cache:
            _, oldest = self._cache.popitem(last=False)
            self._free_bytes += pixels_of(oldest).nbytes
