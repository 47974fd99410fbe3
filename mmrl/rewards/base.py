"""What a reward is: something that scores one response to one sample.

`RewardItem` goes in, `Score` comes out. A reward that cannot score a response raises `RewardFailure`; the runner
turns that, and any other exception, into a missing score of that one response.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from mmrl.types import FinishReason, Sample


class RewardFailure(Exception):
    """This response cannot be scored; the message says why."""


@dataclass(frozen=True)
class RewardItem:
    """One response and what it answers.

    response: the decoded text without special tokens.
    index: which of the sample's responses this is.
    num_tokens: tokens that the policy sampled for it.
    finish_reason: `stop`, or `length` for a response cut at the limit.
    """

    sample: Sample
    response: str
    index: int = 0
    num_tokens: int = 0
    finish_reason: FinishReason = "stop"

    @property
    def answer(self) -> str:
        """The sample's reference answer.

        Raises:
            RewardFailure: the sample has none, or an empty one.
        """
        answer = self.sample.answer
        if answer is None or not answer.strip():
            raise RewardFailure(f"the sample has no reference answer (got {answer!r}) to compare with")
        return answer


@dataclass(frozen=True)
class Score:
    """value: the raw reward, finite; None when a user's function has no opinion on this response.

    extracted: the answer that was read out of the response, None when none was found.
    explanation: one line on why the value is what it is.
    extras: further numbers or texts that a user's function gave.
    """

    value: float | None
    extracted: str | None = None
    explanation: str | None = None
    extras: Mapping[str, float | str] = field(default_factory=dict)


class Reward(ABC):
    """Scores responses. Built once from its config and used for many responses; keeps no state between them."""

    isolated: ClassVar[bool] = False
    """Whether it may hang or crash, and so runs in a process of its own under its config's `timeout_s`."""

    batch: int | None = None
    """Responses that are scored in one call of `score_batch`; None where each is scored by itself."""

    @classmethod
    def preload(cls) -> None:
        """Import what scoring needs. Called once before processes are forked, so that each starts at once."""
        return

    @abstractmethod
    def score(self, item: RewardItem) -> Score:
        """Score one response.

        Raises:
            RewardFailure: the response cannot be scored.
        """

    def score_batch(self, items: Sequence[RewardItem]) -> list[Score | RewardFailure]:
        """Score several at once; only called where `batch` is set. A failure in the list is that of one response.

        Raises:
            RewardFailure: none of them can be scored.
        """
        raise NotImplementedError(f"{type(self).__name__} scores one response at a time")
