"""Config of what a run keeps of its samples."""

from __future__ import annotations

from pydantic import Field

from mmrl.config.base import ConfigModel


class RecordConfig(ConfigModel):
    """Every response keeps its numbers; whole groups keep prompt, text and tokens too, up to a budget."""

    every: int = Field(1, ge=1)
    """Steps between training steps whose samples are kept; evaluations are always kept."""
    full_tokens_per_step: int | None = Field(default=65536, ge=0)
    """Response tokens a step whose groups are kept with prompt, text and token ids; null keeps all."""
    token_logprobs: bool = True
    """Keep the log-probability of each token of those groups."""
    mirror_every_s: float = Field(30.0, gt=0)
    """Where the run directory is the address of an object store: seconds between two looks for what is finished and is
    not there yet."""
