"""Config of the reward that a model gives."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from mmrl.config.base import PathText
from mmrl.config.reward_base import RewardBase


class ModelRewardConfig(RewardBase):
    """What a reward model says: a sequence classifier (a DeBERTa, or a language model with a head), or a
    vision-language model that mmrl trained with a head."""

    type: Literal["model"] = "model"
    """Which reward function this is."""
    path: PathText
    """Folder or hub name of the model; a vision-language model needs a folder with reward_head.safetensors."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs, in a process of its own; auto takes a GPU when there is one."""
    gpu: int | None = Field(None, ge=0)
    """Number of the GPU that it has for itself; the first if not given."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of its passes."""
    batch: int = Field(8, ge=1)
    """Most responses in one pass."""
    label: int | str | None = None
    """Of a classifier with several classes: the one whose probability is the value."""
    transform: Literal["none", "sigmoid"] = "none"
    """What is made of the single number that a reward model gives."""
    max_tokens: int | None = Field(None, ge=1)
    """Longest prompt with response; a longer one is a failure. The model's own limit if not given."""
    min_pixels: int = Field(3136, ge=1)
    """For a vision-language model: smaller images are enlarged to this many pixels."""
    max_pixels: int = Field(1003520, ge=1)
    """For a vision-language model: larger images are shrunk to this many pixels."""
    timeout_s: float = Field(120.0, gt=0)
    """Seconds for one pass; then its responses count as failed and the model is loaded anew."""
    load_timeout_s: float = Field(600.0, gt=0)
    """Seconds for the model to load."""

    @property
    def judges_answer(self) -> bool:
        return False

    @property
    def has_open_scale(self) -> bool:
        return True

    @field_validator("path")
    @classmethod
    def _not_blank(cls, path: str) -> str:
        if not path.strip():
            raise ValueError("path is empty; give a model's folder or its name on the hub as owner/name")
        return path
