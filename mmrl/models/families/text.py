"""Text-only causal language models: Qwen2, Qwen3, Llama and others that `AutoModelForCausalLM` loads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from mmrl.batch import PreparedPrompt
from mmrl.config.run import ModelPart
from mmrl.models.families.base import Family


class TextFamily(Family):
    model_types = ("qwen2", "qwen3", "llama", "mistral")
    sees_images = False
    auto_class = AutoModelForCausalLM
    num_position_axes = 1

    def language_model(self, hf: Any) -> nn.Module:
        return hf.get_decoder()

    def parts(self, hf: Any) -> dict[ModelPart, tuple[nn.Module, ...]]:
        return {"language": (hf,)}

    def positions(self, hf: Any, prompt: PreparedPrompt) -> Tensor:
        return torch.arange(len(prompt))[None]

    def attention_settings(self, name: str) -> str:
        return name

    def _position_ids(self, positions: Tensor) -> Tensor:
        return positions[0]
