"""Qwen3-VL: features of several depths of the tower are added to the outputs of the first language layers (deepstack).

DeepStack: arXiv 2406.04334.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from mmrl.models.families.base import ImageSlots
from mmrl.models.families.qwen_vl import QwenVlFamily


class Qwen3VlFamily(QwenVlFamily):
    model_types = ("qwen3_vl",)

    def projectors(self, hf: Any) -> tuple[nn.Module, ...]:
        return (hf.model.visual.merger, hf.model.visual.deepstack_merger_list)

    def deepstack_of(self, output: Any) -> tuple[Tensor, ...]:
        return tuple(output.deepstack_features)

    def _slot_arguments(self, slots: ImageSlots | None, embeds: Tensor) -> dict[str, Any]:
        if slots is None:
            return {}
        mask = slots.mask(embeds.shape[0], embeds.shape[1])
        return {"visual_pos_masks": mask, "deepstack_visual_embeds": list(slots.features.deepstack)}
