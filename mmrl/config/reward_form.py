"""Config of the rewards for the form of a response."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from mmrl.config.reward_base import RewardBase


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
