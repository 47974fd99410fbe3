"""When checkpoints are written and which are kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel


class CheckpointConfig(ConfigModel):
    """A checkpoint is kept while one of these asks for it, and pinned ones (`mmrl checkpoint pin`) always are. Nothing
    is deleted before the next one is whole."""

    every: int = Field(50, ge=0)
    """Steps between checkpoints; 0 writes one at the end only."""
    keep: int = Field(3, ge=1)
    """How many of the newest are kept."""
    keep_every: int | None = Field(None, ge=1)
    """Checkpoints of steps that this divides are kept for good; null keeps none for their step."""
    best: str | None = "eval/reward"
    """The metric whose best checkpoint is kept, among those of steps that have it: let eval.every divide
    checkpoint.every. Null keeps none for its metric."""
    best_mode: Literal["max", "min"] = "max"
    """Whether the best value of that metric is the highest or the lowest."""
    keep_best: int = Field(1, ge=1)
    """How many of the best are kept."""
