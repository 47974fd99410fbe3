"""Adapters: low-rank matrices that are trained beside frozen weights (LoRA, arXiv 2106.09685)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel
from mmrl.config.optim import ModelPart


class LoraConfig(ConfigModel):
    rank: int = Field(16, ge=1, le=512)
    """Rank of the adapter of each linear map."""
    alpha: float = Field(32.0, gt=0)
    """What an adapter adds is scaled by alpha / rank."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on an adapter's input while kind sft trains; a policy that samples has none, since it would be another
    one then than its sampler."""
    targets: tuple[ModelPart, ...] = Field(("language",), min_length=1)
    """Parts whose linear maps get an adapter: language, projector, vision. Nothing else is trained; the head over the
    vocabulary has none."""
    sync: Literal["merged", "adapter"] = "merged"
    """What the rollout engine gets after a step: merged sends all weights with the adapter added in, adapter sends the
    adapter alone (engine vllm takes one of the language model)."""
