"""Qwen2.5-VL: most blocks of the tower attend within windows; the tower itself puts its features back in order."""

from __future__ import annotations

from typing import Any

from mmrl.models.families.qwen_vl import QwenVlFamily


class Qwen2_5VlFamily(QwenVlFamily):
    model_types = ("qwen2_5_vl",)

    def vision_attention_pairs(self, hf: Any, grid_thw: tuple[int, int, int]) -> int:
        frames, rows, columns = grid_thw
        config = hf.config.vision_config
        merge = config.spatial_merge_size
        window = config.window_size // merge // config.patch_size
        # A window is a rectangle, so the squares of its area are the products of the squares of its sides.
        windowed = merge**4 * _squares(rows // merge, window) * _squares(columns // merge, window)
        num_full = len(config.fullatt_block_indexes)
        return frames * (num_full * (rows * columns) ** 2 + (config.depth - num_full) * windowed)


def _squares(length: int, window: int) -> int:
    """`length` cut into windows, the last one shorter: the sum of their squares."""
    full, rest = divmod(length, window)
    return full * window**2 + rest**2
