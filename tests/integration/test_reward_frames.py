"""Resized frames against the resizing that models get their images with."""

from __future__ import annotations

import random

import pytest

from mmrl.rewards.vision.frames import resized_size


@pytest.mark.parametrize(
    ("factor", "min_pixels", "max_pixels"), [(28, 3136, 401408), (28, 3136, 12845056), (32, 65536, 1003520)]
)
def test_sizes_are_those_of_qwen_vl_utils(factor: int, min_pixels: int, max_pixels: int) -> None:
    from qwen_vl_utils.vision_process import smart_resize

    draw = random.Random(0)
    sizes = [(draw.randint(1, 3000), draw.randint(1, 3000)) for _ in range(500)] + [(26, 28), (332, 27), (1920, 1080)]
    for width, height in sizes:
        if max(width, height) > 200 * min(width, height):
            continue
        expected_height, expected_width = smart_resize(height, width, factor, min_pixels, max_pixels)
        expected = (max(factor, expected_width), max(factor, expected_height))
        limits = {"factor": factor, "min_pixels": min_pixels, "max_pixels": max_pixels}
        assert resized_size(width, height, **limits) == expected, (width, height)
