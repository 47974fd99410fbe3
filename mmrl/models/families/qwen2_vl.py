"""Qwen2-VL: one attention over each whole image."""

from __future__ import annotations

from mmrl.models.families.qwen_vl import QwenVlFamily


class Qwen2VlFamily(QwenVlFamily):
    model_types = ("qwen2_vl",)
