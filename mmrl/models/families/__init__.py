"""One small adapter a model family, found by `config.model_type`."""

from __future__ import annotations

from typing import Any

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from mmrl.errors import ModelError
from mmrl.models.families.base import Family, ImageFeatures, ImageSlots
from mmrl.models.families.qwen2_5_vl import Qwen2_5VlFamily
from mmrl.models.families.qwen2_vl import Qwen2VlFamily
from mmrl.models.families.qwen3_vl import Qwen3VlFamily
from mmrl.models.families.text import TextFamily

__all__ = ["FAMILIES", "Family", "ImageFeatures", "ImageSlots", "family_for"]

FAMILIES: tuple[Family, ...] = (Qwen2VlFamily(), Qwen2_5VlFamily(), Qwen3VlFamily(), TextFamily())


def family_for(config: Any) -> Family:
    """The adapter of a model's configuration.

    Raises ModelError for a type that has none, and for attention that the prefix path cannot continue exactly.
    """
    family = _find(config)
    text = config.get_text_config()
    windowed = ["sliding_attention"] if getattr(text, "sliding_window", None) else ["full_attention"]
    layer_types = set(getattr(text, "layer_types", None) or windowed)
    if layer_types != {"full_attention"}:
        raise ModelError(
            f"model type {config.model_type!r} has layers of type {', '.join(sorted(layer_types))}; "
            "only full attention is supported, so set use_sliding_window to false if the model allows it"
        )
    return family


def _find(config: Any) -> Family:
    for family in FAMILIES:
        if config.model_type in family.model_types:
            return family
    is_text_only = not hasattr(config, "vision_config") and not hasattr(config, "audio_config")
    if is_text_only and config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return FAMILIES[-1]
    known = [model_type for family in FAMILIES for model_type in family.model_types]
    raise ModelError(
        f"model type {config.model_type!r} is not supported; supported are {', '.join(known)} and other text-only "
        "causal language models. A new family needs an adapter in mmrl/models/families/"
    )
