"""Config of the rewards: one class each, told apart by `type`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mmrl.config.base import ConfigModel, PathText


class RewardBase(ConfigModel):
    weight: float = 1.0
    """Factor of this part in the total."""
    name: str | None = None
    """Name of this part in metrics and samples; the type if not given."""

    @property
    def part_name(self) -> str:
        return self.name or self.type  # type: ignore[attr-defined]


class ExactRewardConfig(RewardBase):
    """1 if the extracted answer equals the reference as text, else 0."""

    type: Literal["exact"] = "exact"
    ignore_case: bool = True
    """Compare without regard to case."""
    boxed: bool = True
    """Read the answer from the last \\boxed{...}; otherwise the whole response is the answer."""


class ChoiceRewardConfig(RewardBase):
    """1 if the chosen letter equals the reference letter, else 0."""

    type: Literal["choice"] = "choice"
    choices: str = "ABCDEFGHIJ"
    """The letters that may be chosen."""


class MathRewardConfig(RewardBase):
    """1 if math-verify finds the answer equal to the reference, else 0."""

    type: Literal["math"] = "math"
    timeout_s: float = Field(5.0, gt=0)
    """Seconds for the grading of one response; then it counts as failed."""


class FormatRewardConfig(RewardBase):
    """1 if the whole response matches the pattern, else 0."""

    type: Literal["format"] = "format"
    pattern: str = r"(?s).*\\boxed\{.+\}.*"
    """Regular expression that the whole response must match."""


class LengthRewardConfig(RewardBase):
    """A bonus for short responses: 1 at `free_tokens` or fewer, falling linearly to 0 at `max_tokens`."""

    type: Literal["length"] = "length"
    free_tokens: int = Field(0, ge=0)
    """Up to this many sampled tokens the full bonus is paid."""
    max_tokens: int = Field(..., gt=0)
    """From this many sampled tokens on the bonus is 0."""


class KeywordRewardConfig(RewardBase):
    """Minus one for each occurrence of a keyword, down to -max_penalty."""

    type: Literal["keyword"] = "keyword"
    keywords: tuple[str, ...] = Field(..., min_length=1)
    """Words or phrases that are punished."""
    ignore_case: bool = True
    """Match without regard to case."""
    max_penalty: float = Field(1.0, gt=0)
    """The value never falls below minus this."""


class FunctionRewardConfig(RewardBase):
    """A user's own function."""

    type: Literal["function"] = "function"
    path: PathText
    """The Python file, or a module's dotted name."""
    name: str | None = "score"
    """The function in that file; also the name of the part."""
    arguments: dict[str, Any] = {}
    """Fixed keyword arguments that every call gets."""
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
