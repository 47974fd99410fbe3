"""The types that pass between the stages of a run. No torch here: console and CLI read them too.

Data takes this way: `Sample` (data) -> `Rollout`s in a `RolloutGroup` (rollout engine)
-> `RewardResult`s (rewards) -> `ScoredGroup` (what a stage may filter, and what the run directory keeps).
The tensor form that actor, critic and reference take is `mmrl.batch.GroupBatch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length"]


@dataclass(frozen=True)
class ImageRef:
    """An image in the content-addressed store: the SHA-256 of its stored bytes and its size in pixels."""

    sha256: str
    width: int
    height: int


@dataclass(frozen=True)
class TextPart:
    text: str


@dataclass(frozen=True)
class ImagePart:
    image: ImageRef


ContentPart = TextPart | ImagePart


@dataclass(frozen=True)
class Message:
    role: Role
    content: tuple[ContentPart, ...]

    @property
    def text(self) -> str:
        """The text parts joined; images leave no trace in it."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


@dataclass(frozen=True)
class Sample:
    """One row of a data set.

    id: hash of the row's content, stable across files and machines.
    messages: the prompt; ends with the turn that the policy answers. An assistant turn after it is a text for SFT to
        learn, kept only where the row has an answer besides.
    answer: the reference answer as text, or None where the row has none.
    meta: source, split, coordinate space of boxes and the row's other columns; JSON values only.
    row: line or number of the row in its source, where this process has read that; no part of what the sample is.
    """

    id: str
    messages: tuple[Message, ...]
    answer: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    row: int | None = field(default=None, compare=False, repr=False)

    @property
    def place(self) -> str:
        """Its id for messages, with the file and the row that it is from where they are known."""
        where = "" if self.row is None else f" ({self.meta.get('source')}:{self.row})"
        return f"{self.id}{where}"

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """The images of the prompt, in order of appearance; the same image twice counts twice."""
        return tuple(part.image for message in self.messages for part in message.content if isinstance(part, ImagePart))


@dataclass(frozen=True)
class Rollout:
    """One response that the policy sampled.

    token_ids: (length,) the ids exactly as sampled, the end token included when it was sampled.
    response_mask: (length,) 1 on tokens that the policy sampled, 0 on others such as a tool's answer.
    logprobs: (length,) the sampler's log-probability of each id after temperature and bans; 0.0 where the mask is 0.
    finish_reason: `stop` for an end token or stop string, `length` when cut at the limit.
    text: the decoded response without special tokens.
    policy_version: the version of the weights that sampled it.
    """

    sample_id: str
    index: int
    token_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    text: str
    policy_version: int
    seed: int
    turns: int = 1

    @property
    def is_truncated(self) -> bool:
        return self.finish_reason == "length"


@dataclass(frozen=True)
class RolloutGroup:
    """One sample and its rollouts. Advantages are computed by this object, never by matching ids or text.

    greedy: the most likely response, where an algorithm compares with it; it is scored and never learned from.
    """

    sample: Sample
    rollouts: tuple[Rollout, ...]
    greedy: Rollout | None = None


@dataclass(frozen=True)
class RewardPart:
    """What one reward function said of one response. `value` is None when it failed; `error` then says why.

    extras: further numbers or texts that a user's function gave for this response.
    scaled: the value after normalisation, for a part that is normalised; it counts in the total then.
    vetoes: whether it overrules the total of this response; None for a reward that is no veto.
    """

    name: str
    value: float | None
    weight: float
    extracted: str | None = None
    explanation: str | None = None
    error: str | None = None
    ms: float = 0.0
    extras: Mapping[str, float | str] = field(default_factory=dict)
    scaled: float | None = None
    vetoes: bool | None = None

    @property
    def worth(self) -> float | None:
        """What it adds to the total where nothing overrules that; None when it failed."""
        counted = self.value if self.scaled is None else self.scaled
        return None if counted is None else counted * self.weight


@dataclass(frozen=True)
class RewardResult:
    """total: the sum of the parts' worth, or None when a part failed: missing, never 0."""

    total: float | None
    parts: tuple[RewardPart, ...]


@dataclass(frozen=True)
class ScoredGroup:
    """A group with a reward for each rollout and, once computed, an advantage for each.

    advantages: (rollouts,) mean advantage over a response's sampled tokens, None for a response left out of the
        update; the field is None where no advantages exist (evaluation).
    greedy_reward: of the group's greedy response, where it has one.
    """

    group: RolloutGroup
    rewards: tuple[RewardResult, ...]
    advantages: tuple[float | None, ...] | None = None
    greedy_reward: RewardResult | None = None
