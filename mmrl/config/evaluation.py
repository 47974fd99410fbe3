"""How held-out data is answered and graded, during training and by itself."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel


class CorrectConfig(ConfigModel):
    """When a response counts as right, which accuracy, pass@k and maj@k go by."""

    part: str | None = None
    """The reward that decides, by its name; null takes the first that does not only shape."""
    at_least: float = 1.0
    """Value of that reward, before its weight, from which on a response is right."""


class AnswerConfig(ConfigModel):
    """How prompts are answered."""

    samples_per_prompt: int = Field(1, ge=1)
    """Responses for each prompt."""
    temperature: float = Field(0.0, ge=0)
    """Temperature of evaluation; 0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample only from the smallest set of tokens with this probability; 1 is off."""
    top_k: int = Field(0, ge=0)
    """Sample only from this many most likely tokens; 0 is off."""
    greedy: bool = False
    """Answer each prompt greedily besides, where temperature is above 0."""
    k: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """The k of pass@k and maj@k; null takes 1, 2, 4 … up to samples_per_prompt where that is above 1."""
    correct: CorrectConfig = CorrectConfig()
    """When a response counts as right."""

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k and maj@k, ascending."""
        if self.k is not None:
            return tuple(sorted(set(self.k)))
        if self.samples_per_prompt == 1:
            return ()
        powers = [2**power for power in range(self.samples_per_prompt.bit_length())]
        return tuple(sorted({*powers, self.samples_per_prompt}))

    @model_validator(mode="after")
    def _enough_responses(self) -> AnswerConfig:
        largest = max(self.k or (1,))
        if largest > self.samples_per_prompt:
            raise ValueError(
                f"k: pass@{largest} needs at least {largest} responses a prompt, and samples_per_prompt is "
                f"{self.samples_per_prompt}; raise it, or lower k"
            )
        if self.samples_per_prompt > 1 and self.temperature == 0:
            raise ValueError(
                f"samples_per_prompt: {self.samples_per_prompt} greedy responses to a prompt are all the same; set "
                "temperature above 0 (greedy: true adds the greedy one), or samples_per_prompt: 1"
            )
        return self


class EvalConfig(AnswerConfig):
    """When and how a run evaluates on data.eval."""

    every: int = Field(25, ge=0)
    """Steps between evaluations on data.eval; 0 evaluates at the end only."""
    at_start: bool = True
    """Evaluate before the first step too."""
    max_samples: int | None = Field(None, ge=1)
    """Only the first so many rows of data.eval."""
