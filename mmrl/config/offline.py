"""Config of the kinds that learn from answers that are there already; that of losses on preferences is `preference`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel


class OfflineFields(ConfigModel):
    batch_size: int = Field(32, ge=1)
    """Samples in each step, which is one optimiser step."""
    max_response_tokens: int | None = Field(None, ge=1)
    """Samples with a longer answer are left out, never cut; null sets no limit."""


class SftConfig(OfflineFields):
    """How reference answers are learned."""

    train_on: Literal["all_assistant", "last", "marked"] = "all_assistant"
    """Which assistant turns of a conversation are learned: all of them, the last one, or those that its row marks in
    `train_turns`, a list of a true or false for each assistant turn."""
    packing: bool = True
    """Put samples one behind the other in rows without padding; each sees only itself. False pads them as train.path
    says."""


class RewardModelTraining(OfflineFields):
    """How a reward model learns from pairs of a chosen and a rejected answer."""

    margin: str | None = None
    """Column of the data that says by how much the chosen answer of a row is better; null takes no margin."""
    centring: float = Field(0.01, ge=0)
    """Weight of (chosen + rejected score) squared, which keeps scores around zero; 0 turns it off."""
