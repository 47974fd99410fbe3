"""Config of the rewards for the form of a response."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from mmrl.config.reward_base import RewardBase


class FormReward(RewardBase):
    """What all rewards for the form of a response share."""

    @property
    def judges_answer(self) -> bool:
        return False


class FormatRewardConfig(FormReward):
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


class LengthRewardConfig(FormReward):
    """A bonus for short responses: 1 at `free_tokens` or fewer, falling linearly to 0 at `max_tokens`.

    A response cut at the limit, or an empty one, gets none.
    """

    type: Literal["length"] = "length"
    """Which reward function this is."""
    shaping: bool = True
    """Whether it only shapes how a response looks; see algorithm.outcome_gate."""
    free_tokens: int = Field(0, ge=0)
    """Up to this many sampled tokens the full bonus is paid."""
    max_tokens: int = Field(..., gt=0)
    """From this many sampled tokens on the bonus is 0."""

    @model_validator(mode="after")
    def _ordered(self) -> LengthRewardConfig:
        if self.free_tokens >= self.max_tokens:
            raise ValueError(f"free_tokens ({self.free_tokens}) must be below max_tokens ({self.max_tokens})")
        return self


class KeywordRewardConfig(FormReward):
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


class TagsRewardConfig(FormReward):
    """1 if the response is the given tags one after the other (`<think>…</think><answer>…</answer>`), else 0."""

    type: Literal["tags"] = "tags"
    """Which reward function this is."""
    tags: tuple[str, ...] = Field(("think", "answer"), min_length=1)
    """Names of the tags in their order; each must be there once, with something in it."""
    partial: bool = False
    """Pay for each tag that stands once, closed and filled, its share, whatever its place."""

    @field_validator("tags")
    @classmethod
    def _names(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [tag for tag in tags if not re.fullmatch(r"[A-Za-z][\w-]*", tag)]
        if wrong:
            raise ValueError(f"a tag is named without brackets, such as think (got {wrong[0]!r})")
        if len(set(tags)) < len(tags):
            raise ValueError(f"a tag is named twice (got {list(tags)!r})")
        return tags


class RepetitionRewardConfig(FormReward):
    """Minus the share of repeated word sequences, from 0 (none repeated) down to -max_penalty (all the same)."""

    type: Literal["repetition"] = "repetition"
    """Which reward function this is."""
    shaping: bool = True
    """Whether it only shapes how a response looks; see algorithm.outcome_gate."""
    ngram: int = Field(4, ge=1)
    """Length of the sequences, in words; in Chinese and Japanese each character is a word."""
    max_penalty: float = Field(1.0, gt=0)
    """The penalty of a response that only repeats one sequence."""


class LanguageRewardConfig(FormReward):
    """The share of letters that belong to the wanted language's script; formulas and code do not count."""

    type: Literal["language"] = "language"
    """Which reward function this is."""
    language: Literal["prompt", "en", "zh", "ja", "ko", "ru", "el", "ar", "he", "hi", "th"] = "prompt"
    """The wanted language, or that of the prompt. Languages are told apart by script: en stands for every language in
    Latin letters."""
    threshold: float | None = Field(None, gt=0, le=1)
    """If given, 1 for a share of at least this much, else 0; if not, the share itself."""


class OverlongRewardConfig(FormReward):
    """A penalty near the length limit: 0 up to limit - buffer tokens, then linearly down to -penalty at the limit."""

    type: Literal["overlong"] = "overlong"
    """Which reward function this is."""
    shaping: bool = True
    """Whether it only shapes how a response looks; see algorithm.outcome_gate."""
    limit: int = Field(..., gt=0)
    """The longest response, in tokens; as rollout.max_response_tokens."""
    buffer: int = Field(..., gt=0)
    """Tokens below the limit over which the penalty grows."""
    penalty: float = Field(1.0, gt=0)
    """The penalty at the limit."""

    @model_validator(mode="after")
    def _fits(self) -> OverlongRewardConfig:
        if self.buffer > self.limit:
            raise ValueError(f"buffer ({self.buffer}) must not be above limit ({self.limit})")
        return self
