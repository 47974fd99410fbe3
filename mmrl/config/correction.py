"""Config of the correction between the sampler's probabilities and the trainer's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel


class CorrectionConfig(ConfigModel):
    """rho is the trainer's probability of a sampled token over the sampler's, both before the update."""

    weight: Literal["tis", "icepop"] | None = None
    """tis weighs the loss of a token by min(rho, cap); icepop by rho where low <= rho <= high and 0 elsewhere; null
    weighs none."""
    level: Literal["token", "sequence"] = "token"
    """Whether rho is of each token or the product over its response."""
    cap: float = Field(2.0, gt=0)
    """Largest weight of tis."""
    low: float = Field(0.5, ge=0)
    """Smallest rho that icepop keeps."""
    high: float = Field(5.0, gt=0)
    """Largest rho that icepop keeps."""
    sequence_mask: float | None = Field(None, gt=1)
    """A response is left out of the update where the product of its tokens' rho is above this or below its inverse;
    null leaves none out."""

    @property
    def is_on(self) -> bool:
        return self.weight is not None or self.sequence_mask is not None

    @model_validator(mode="after")
    def _fields_are_of_the_weight(self) -> CorrectionConfig:
        used = {None: set(), "tis": {"level", "cap"}, "icepop": {"level", "low", "high"}}[self.weight]
        unused = sorted((self.changed & {"level", "cap", "low", "high"}) - used)
        if unused:
            raise ValueError(
                f"{unused[0]} has no meaning with weight {self.weight or 'null'}; it belongs to "
                f"{'tis or icepop' if unused[0] == 'level' else 'tis' if unused[0] == 'cap' else 'icepop'}"
            )
        if self.low > self.high:
            raise ValueError(f"low ({self.low:g}) is above high ({self.high:g}), so icepop would keep no token")
        return self
