"""Which parts of a model are trained, and how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from mmrl.config.base import ConfigModel

ModelPart = Literal["vision", "projector", "language"]


class OptimConfig(ConfigModel):
    lr: float = Field(1e-6, gt=0)
    """Learning rate after warm-up (AdamW)."""
    weight_decay: float = Field(0.01, ge=0)
    """Decoupled weight decay of matrices; biases and norms are not decayed."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """AdamW's decay of first and second moments."""
    eps: float = Field(1e-8, gt=0)
    """AdamW's epsilon."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after warm-up, down to min_lr_ratio at the last step."""
    min_lr_ratio: float = Field(0.0, ge=0, le=1)
    """Final learning rate as a share of lr, for linear and cosine."""
    warmup_steps: int = Field(0, ge=0)
    """Steps over which the learning rate rises from 0."""
    grad_clip: float = Field(1.0, gt=0)
    """Largest gradient norm; a larger gradient is scaled down to it."""
