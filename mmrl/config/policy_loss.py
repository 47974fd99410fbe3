"""Config of the policy losses that any algorithm may take in place of its own.

The fields of each stand in a class of their own, since the algorithms that the losses come from have them too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from mmrl.config.base import ConfigModel


class ClipFields(ConfigModel):
    """PPO's clip of the ratio (arXiv 1707.06347)."""

    clip_low: float = Field(0.2, gt=0, lt=1)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(0.2, gt=0)
    """The ratio is clipped above at 1 + clip_high; larger than clip_low is 'clip-higher'."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound of the loss on negative advantages, as a multiple of the advantage; null turns it off."""


class SequenceClipFields(ClipFields):
    """GSPO's clip of one ratio for a whole response (arXiv 2507.18071)."""

    clip_low: float = Field(3e-4, gt=0, lt=1)
    """The ratio of a response is clipped below at 1 - clip_low."""
    clip_high: float = Field(4e-4, gt=0)
    """The ratio of a response is clipped above at 1 + clip_high."""


class CapFields(ConfigModel):
    """CISPO's bound of the ratio as a weight (arXiv 2506.13585)."""

    cap: float = Field(5.0, ge=1)
    """Bound of the ratio itself (not of its distance from 1): a token with a larger ratio weighs this much."""


class GateFields(ConfigModel):
    """SAPO's smooth gate (arXiv 2511.20347)."""

    temperature_positive: float = Field(1.0, gt=0)
    """Steepness of the gate where the advantage is positive; larger lets the ratio move less."""
    temperature_negative: float = Field(1.05, gt=0)
    """Steepness of the gate where the advantage is negative."""


class ClipLossConfig(ClipFields):
    type: Literal["clip"] = "clip"
    """Which loss this is."""


class GspoLossConfig(SequenceClipFields):
    type: Literal["gspo"] = "gspo"
    """Which loss this is."""


class CispoLossConfig(CapFields):
    type: Literal["cispo"] = "cispo"
    """Which loss this is."""


class SapoLossConfig(GateFields):
    type: Literal["sapo"] = "sapo"
    """Which loss this is."""


class PlainLossConfig(ConfigModel):
    type: Literal["plain"] = "plain"
    """Which loss this is."""


def _word_is_a_type(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


PolicyLossConfig = Annotated[
    ClipLossConfig | GspoLossConfig | CispoLossConfig | SapoLossConfig | PlainLossConfig,
    Field(discriminator="type"),
    BeforeValidator(_word_is_a_type),
]
"""A map told apart by `type`, or a bare word for a loss with its defaults."""

LOSS_FIELDS = (ClipFields, CapFields, GateFields)
"""The classes whose fields set a loss."""
