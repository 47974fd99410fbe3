"""Small models that are real: own tokenizer, chat template and processor, saved as folders that `AutoModel…` loads.

`build_tiny_qwen2_5_vl` makes the one that the quickstart trains (size `tiny`, about 0.6 M parameters) and those of the
benchmarks (`small`, 16.5 M, and `medium`, 116 M); `build_tiny` makes a tiny one of every family that mmrl supports.
Weights follow from the seed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    ProcessorMixin,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2TokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from mmrl.models.quiet import without_progress_bars
from mmrl.models.tiny_tokenizer import CHAT_TEMPLATE, SENTENCES, train_tokenizer

TinyFamily = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2"]
Size = Literal["tiny", "small", "medium"]

MERGE = 2
"""Patches that the projector merges, along each side."""


@dataclass(frozen=True)
class _Shape:
    """Sizes of the language model, then of the vision tower (`v_`)."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    v_hidden: int
    v_intermediate: int
    v_depth: int
    v_heads: int

    @property
    def mrope_section(self) -> list[int]:
        """Rotary frequencies for time, height and width: a quarter and twice three eighths of half a head."""
        half = self.hidden // self.heads // 2
        spatial = half * 3 // 8
        return [half - 2 * spatial, spatial, spatial]


_SHAPES: dict[Size, _Shape] = {
    "tiny": _Shape(128, 256, 2, 4, 2, v_hidden=64, v_intermediate=128, v_depth=2, v_heads=2),
    "small": _Shape(384, 1024, 6, 6, 2, v_hidden=256, v_intermediate=768, v_depth=6, v_heads=4),
    "medium": _Shape(768, 2304, 14, 12, 4, v_hidden=384, v_intermediate=1152, v_depth=8, v_heads=6),
}


def build_tiny_qwen2_5_vl(
    folder: Path | str,
    *,
    size: Size = "tiny",
    seed: int = 0,
    sentences: Sequence[str] = SENTENCES,
    tie_embeddings: bool = False,
) -> Path:
    """A Qwen2.5-VL with random weights in `folder`; its tokenizer is trained on `sentences`."""
    return build_tiny("qwen2_5_vl", folder, size=size, seed=seed, sentences=sentences, tie_embeddings=tie_embeddings)


def build_tiny(
    family: TinyFamily,
    folder: Path | str,
    *,
    size: Size = "tiny",
    seed: int = 0,
    sentences: Sequence[str] = SENTENCES,
    tie_embeddings: bool = False,
) -> Path:
    """A model of the given family with random weights and all its files in `folder`; `qwen2` reads text only."""
    folder = Path(folder)
    tokenizer = train_tokenizer(sentences)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _BUILDERS[family](_SHAPES[size], tokenizer, tie_embeddings)
    end_token_ids = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    model.generation_config = GenerationConfig(eos_token_id=end_token_ids, pad_token_id=tokenizer.pad_token_id)
    with without_progress_bars():
        model.save_pretrained(folder)
        _processor(family, tokenizer).save_pretrained(folder)
    return folder


def _text_settings(shape: _Shape, tokenizer: Qwen2TokenizerFast, tie_embeddings: bool) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": None,
        "tie_word_embeddings": tie_embeddings,
    }


def _vision_token_settings(tokenizer: Qwen2TokenizerFast, tie_embeddings: bool) -> dict[str, Any]:
    ids = tokenizer.convert_tokens_to_ids
    return {
        "image_token_id": ids("<|image_pad|>"),
        "video_token_id": ids("<|video_pad|>"),
        "vision_start_token_id": ids("<|vision_start|>"),
        "vision_end_token_id": ids("<|vision_end|>"),
        "tie_word_embeddings": tie_embeddings,
    }


def _mrope(shape: _Shape, **more: object) -> dict[str, object]:
    return {"rope_type": "default", "rope_theta": 1_000_000.0, "mrope_section": shape.mrope_section, **more}


def _build_qwen2_vl(shape: _Shape, tokenizer: Qwen2TokenizerFast, tie_embeddings: bool) -> PreTrainedModel:
    text = {**_text_settings(shape, tokenizer, tie_embeddings), "rope_parameters": _mrope(shape)}
    vision = {
        "depth": shape.v_depth,
        "embed_dim": shape.v_hidden,
        "hidden_size": shape.hidden,
        "mlp_ratio": shape.v_intermediate // shape.v_hidden,
        "num_heads": shape.v_heads,
        "patch_size": 14,
        "spatial_merge_size": MERGE,
    }
    ids = _vision_token_settings(tokenizer, tie_embeddings)
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision, **ids))


def _build_qwen2_5_vl(shape: _Shape, tokenizer: Qwen2TokenizerFast, tie_embeddings: bool) -> PreTrainedModel:
    text = {**_text_settings(shape, tokenizer, tie_embeddings), "rope_parameters": _mrope(shape)}
    vision = {
        "depth": shape.v_depth,
        "hidden_size": shape.v_hidden,
        "intermediate_size": shape.v_intermediate,
        "num_heads": shape.v_heads,
        "out_hidden_size": shape.hidden,
        "patch_size": 14,
        "spatial_merge_size": MERGE,
        "window_size": 112,
        "fullatt_block_indexes": [shape.v_depth // 2 - 1, shape.v_depth - 1] if shape.v_depth > 2 else [1],
    }
    ids = _vision_token_settings(tokenizer, tie_embeddings)
    return Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids))


def _build_qwen3_vl(shape: _Shape, tokenizer: Qwen2TokenizerFast, tie_embeddings: bool) -> PreTrainedModel:
    text = {
        **_text_settings(shape, tokenizer, tie_embeddings),
        "head_dim": shape.hidden // shape.heads,
        "rope_parameters": _mrope(shape, mrope_interleaved=True),
    }
    vision = {
        "depth": shape.v_depth,
        "hidden_size": shape.v_hidden,
        "intermediate_size": shape.v_intermediate,
        "num_heads": shape.v_heads,
        "out_hidden_size": shape.hidden,
        "patch_size": 16,
        "spatial_merge_size": MERGE,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [0],
    }
    ids = _vision_token_settings(tokenizer, tie_embeddings)
    return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision, **ids))


def _build_qwen2(shape: _Shape, tokenizer: Qwen2TokenizerFast, tie_embeddings: bool) -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**_text_settings(shape, tokenizer, tie_embeddings)))


_BUILDERS: dict[TinyFamily, Callable[[_Shape, Qwen2TokenizerFast, bool], PreTrainedModel]] = {
    "qwen2_vl": _build_qwen2_vl,
    "qwen2_5_vl": _build_qwen2_5_vl,
    "qwen3_vl": _build_qwen3_vl,
    "qwen2": _build_qwen2,
}


def _processor(family: TinyFamily, tokenizer: Qwen2TokenizerFast) -> ProcessorMixin | Qwen2TokenizerFast:
    """The model's processor; images from 4 tokens up, as the hub's models of the family take them."""
    if family == "qwen2":
        return tokenizer
    patch = 16 if family == "qwen3_vl" else 14
    side = patch * MERGE
    sizes = {"patch_size": patch, "merge_size": MERGE, "temporal_patch_size": 2}
    limits = {"shortest_edge": 4 * side**2, "longest_edge": 16384 * side**2}
    half = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]} if family == "qwen3_vl" else {}
    images = Qwen2VLImageProcessor(size=limits, **sizes, **half)
    if family == "qwen3_vl":
        return Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(**sizes), chat_template=CHAT_TEMPLATE)
    kind = Qwen2VLProcessor if family == "qwen2_vl" else Qwen2_5_VLProcessor
    return kind(images, tokenizer, Qwen2VLVideoProcessor(**sizes), chat_template=CHAT_TEMPLATE)
