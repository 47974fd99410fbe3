"""Qwen2.5-VL: most blocks of the tower attend within windows; the tower itself puts its features back in order."""

from __future__ import annotations

from mmrl.models.families.qwen_vl import QwenVlFamily


class Qwen2_5VlFamily(QwenVlFamily):
    model_types = ("qwen2_5_vl",)
