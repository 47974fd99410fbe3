"""Config of the critic, for the algorithms that learn values."""

from __future__ import annotations

from pydantic import Field

from mmrl.config.base import ConfigModel, PathText
from mmrl.config.optim import ModelPart, OptimConfig


class CriticConfig(ConfigModel):
    """The model that says of every token how much reward is still to come, and how it learns."""

    model: PathText | None = None
    """Folder or hub name of the model that the critic begins as, with the tokenizer of the policy's; null is a copy of
    the policy. Its value head begins at zero either way."""
    freeze: tuple[ModelPart, ...] | None = None
    """Parts of the critic that are not trained; null takes model.freeze."""
    optim: OptimConfig = OptimConfig(lr=1e-5)
    """The critic's own optimiser."""
    value_clip: float | None = Field(0.5, gt=0)
    """How far a value may move from what it was before the update until its loss is cut off; null turns that off."""
    warmup_steps: int | None = Field(None, ge=0)
    """First steps of the run in which only the critic learns and the policy stays as it is; null takes the algorithm's
    (ppo 0, vapo 50). The policy's learning rate takes its course from the step in which it first moves."""
