"""Config of the rewards: one class each, told apart by `type`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from mmrl.config.base import ConfigModel, PathText


class RewardBase(ConfigModel):
    weight: float = 1.0
    """Factor of this part in the total."""
    name: str | None = None
    """Name of this part in metrics and samples; the type if not given."""

    @property
    def part_name(self) -> str:
        return str(self.name or self.type)  # type: ignore[attr-defined]


class ExactRewardConfig(RewardBase):
    """1 if the extracted answer equals the reference as text, else 0."""

    type: Literal["exact"] = "exact"
    """Which reward function this is."""
    ignore_case: bool = True
    """Compare without regard to case."""
    boxed: bool = True
    """Read the answer from the last \\boxed{...}; otherwise the whole response is the answer."""


class ChoiceRewardConfig(RewardBase):
    """1 if the chosen letter equals the reference letter, else 0."""

    type: Literal["choice"] = "choice"
    """Which reward function this is."""
    choices: str = "ABCDEFGHIJ"
    """The letters that may be chosen."""

    @field_validator("choices")
    @classmethod
    def _letters(cls, choices: str) -> str:
        if not re.fullmatch(r"[A-Za-z]+", choices):
            raise ValueError(f"choices must be letters written together, such as ABCD (got {choices!r})")
        return choices


class MathRewardConfig(RewardBase):
    """1 if math-verify finds the answer equal to the reference, else 0."""

    type: Literal["math"] = "math"
    """Which reward function this is."""
    timeout_s: float = Field(5.0, gt=0)
    """Seconds for the grading of one response; then it counts as failed."""


class FormatRewardConfig(RewardBase):
    """1 if the whole response matches the pattern, else 0."""

    type: Literal["format"] = "format"
    """Which reward function this is."""
    pattern: str = r"(?s).*\\boxed(\{(?:[^{}\\]|\\.|(?1))+\}).*"
    """Regular expression (of the `regex` package) that the whole response must match; if not given, it must hold a
    closed \\boxed{...} with something in it."""
    timeout_s: float = Field(1.0, gt=0)
    """Seconds for the matching of one response; then it counts as failed."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        import regex

        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from None
        return pattern


class LengthRewardConfig(RewardBase):
    """A bonus for short responses: 1 at `free_tokens` or fewer, falling linearly to 0 at `max_tokens`.

    A response cut at the limit, or an empty one, gets none.
    """

    type: Literal["length"] = "length"
    """Which reward function this is."""
    free_tokens: int = Field(0, ge=0)
    """Up to this many sampled tokens the full bonus is paid."""
    max_tokens: int = Field(..., gt=0)
    """From this many sampled tokens on the bonus is 0."""

    @model_validator(mode="after")
    def _ordered(self) -> LengthRewardConfig:
        if self.free_tokens >= self.max_tokens:
            raise ValueError(f"free_tokens ({self.free_tokens}) must be below max_tokens ({self.max_tokens})")
        return self


class KeywordRewardConfig(RewardBase):
    """Minus one for each occurrence of a keyword, down to -max_penalty."""

    type: Literal["keyword"] = "keyword"
    """Which reward function this is."""
    keywords: tuple[str, ...] = Field(..., min_length=1)
    """Words or phrases that are punished; they match as whole words."""
    ignore_case: bool = True
    """Match without regard to case."""
    max_penalty: float = Field(1.0, gt=0)
    """The value never falls below minus this."""

    @field_validator("keywords")
    @classmethod
    def _not_blank(cls, keywords: tuple[str, ...]) -> tuple[str, ...]:
        if any(not keyword.strip() for keyword in keywords):
            raise ValueError(f"a keyword is empty (got {list(keywords)!r}); it would match everywhere")
        return keywords


class FunctionRewardConfig(RewardBase):
    """A user's own function: a number for each response, in a process of its own and under a deadline."""

    type: Literal["function"] = "function"
    """Which reward function this is."""
    path: PathText
    """The Python file, or a module's dotted name."""
    name: str | None = "score"
    """The function in that file; also the name of the part."""
    arguments: dict[str, Any] = {}
    """Fixed keyword arguments that every call gets besides sample, response, answer, images, meta, num_tokens and
    finish_reason, of which it gets those that it names."""
    timeout_s: float = Field(10.0, gt=0)
    """Seconds for one response; then it counts as failed."""


RewardConfig = Annotated[
    ExactRewardConfig
    | ChoiceRewardConfig
    | MathRewardConfig
    | FormatRewardConfig
    | LengthRewardConfig
    | KeywordRewardConfig
    | FunctionRewardConfig,
    Field(discriminator="type"),
]
