"""The frames that coordinates are given in, and the way from one to another.

Boxes and points are compared in the unit frame, 0 to 1 over each side of the image. The overlap of two boxes is the
same in every frame.
"""

from __future__ import annotations

import math

from mmrl.config.reward_vision import Frame, FramedRewardConfig
from mmrl.rewards.base import RewardFailure
from mmrl.types import ImageRef, Sample


def unit_scales(config: FramedRewardConfig, sample: Sample) -> tuple[tuple[float, float], tuple[float, float]]:
    """What x and y are multiplied by to be in the unit frame: for the answer, and for the reference.

    Raises:
        RewardFailure: the image whose size is needed is not there.
    """
    return _scale(config.frame, config, sample), _scale(config.reference_frame, config, sample)


def scales_to_compare(config: FramedRewardConfig, sample: Sample) -> tuple[tuple[float, float], tuple[float, float]]:
    """The same for boxes, whose overlap is the same in every frame: where both are in one frame, no image is needed."""
    if config.frame == config.reference_frame:
        return (1.0, 1.0), (1.0, 1.0)
    return unit_scales(config, sample)


def framed_image(config: FramedRewardConfig, sample: Sample) -> ImageRef:
    """The image that the coordinates are in. Raises RewardFailure where the sample has no such image."""
    images = sample.images
    if config.image >= len(images):
        raise RewardFailure(
            f"coordinates in {config.frame} and {config.reference_frame} are compared by the size of image "
            f"{config.image}, but the sample has {len(images)} images"
        )
    return images[config.image]


def resized_size(width: int, height: int, *, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(width, height) of an image as Qwen's processors resize it: multiples of `factor` with an area within bounds.

    The same as `smart_resize` of qwen-vl-utils, which brings torch along; a test compares the two.
    """
    resized_width = max(factor, round(width / factor) * factor)
    resized_height = max(factor, round(height / factor) * factor)
    if resized_width * resized_height > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        resized_width = max(factor, math.floor(width / shrink / factor) * factor)
        resized_height = max(factor, math.floor(height / shrink / factor) * factor)
    elif resized_width * resized_height < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        resized_width = math.ceil(width * grow / factor) * factor
        resized_height = math.ceil(height * grow / factor) * factor
    return resized_width, resized_height


def _scale(frame: Frame, config: FramedRewardConfig, sample: Sample) -> tuple[float, float]:
    if frame == "unit":
        return 1.0, 1.0
    if frame == "per_mille":
        return 1e-3, 1e-3
    image = framed_image(config, sample)
    if frame == "pixels":
        return 1 / image.width, 1 / image.height
    assert config.min_pixels is not None
    assert config.max_pixels is not None
    width, height = resized_size(
        image.width,
        image.height,
        factor=config.factor,
        min_pixels=config.min_pixels,
        max_pixels=config.max_pixels,
    )
    return 1 / width, 1 / height
