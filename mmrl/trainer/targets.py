"""Prompt and targets of a sample: RL and evaluation take the prompt, the other kinds answers too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mmrl.data.preference import PAIR
from mmrl.data.serialise import messages_from_json
from mmrl.errors import DataError
from mmrl.types import Message, Sample, TextPart

MARKS = "train_turns"
"""Column, so key of `Sample.meta`, that says for each assistant turn whether it is learned."""

TrainOn = Literal["all_assistant", "last", "marked"]


@dataclass(frozen=True)
class Judged:
    """An answer to a prompt, as turns from the assistant's first on, and whether it was judged good."""

    turns: tuple[Message, ...]
    is_good: bool


@dataclass(frozen=True)
class Conversation:
    """A sample for SFT: the prompt before the first turn that is learned, all turns from there, and for each of the
    assistant's among them whether it is learned."""

    prompt: Sample
    turns: tuple[Message, ...]
    is_learned: tuple[bool, ...]


def prompt_only(sample: Sample) -> Sample:
    """The sample without an assistant turn at its end: what the policy is asked to answer."""
    if sample.messages[-1].role == "assistant":
        return replace(sample, messages=sample.messages[:-1])
    return sample


def has_target(sample: Sample) -> bool:
    """Whether there is a text to learn."""
    return sample.messages[-1].role == "assistant" or sample.answer is not None


def conversation(sample: Sample, train_on: TrainOn) -> Conversation | None:
    """What SFT learns of a sample that has a target: its assistant turns, that at the end (else its answer) included.

    None where nothing of it is to be learned. A turn that no other comes before is no answer and never learned.
    Raises DataError where the marks of `marked` do not fit the turns.
    """
    messages = sample.messages
    if messages[-1].role != "assistant":
        assert sample.answer is not None, "rows without a target are refused before the run"
        messages = (*messages, Message("assistant", (TextPart(sample.answer),)))
    places = [index for index, message in enumerate(messages) if message.role == "assistant"]
    flags = _flags(sample, len(places), train_on)
    learned = [place for place, flag in zip(places, flags, strict=True) if flag and place > 0]
    if not learned:
        return None
    first = learned[0]
    return Conversation(
        prompt=replace(sample, messages=messages[:first]),
        turns=messages[first : learned[-1] + 1],
        is_learned=tuple(place in learned for place in places if first <= place <= learned[-1]),
    )


def pair_of(sample: Sample) -> tuple[Judged, Judged] | None:
    """The chosen and the rejected answer of a row; None where it has not both."""
    if any(not isinstance(sample.meta.get(name), list) for name in PAIR):
        return None
    chosen, rejected = (messages_from_json(sample.meta[name]) for name in PAIR)
    return Judged(chosen, True), Judged(rejected, False)


def judged_of(sample: Sample) -> tuple[Judged, ...]:
    """The answers of a row that are known to be good or bad: both of a pair, or a completion with its label."""
    pair = pair_of(sample)
    if pair is not None:
        return pair
    label, completion = sample.meta.get("label"), sample.meta.get("completion")
    if not isinstance(label, bool) or not isinstance(completion, list):
        return ()
    return (Judged(messages_from_json(completion), label),)


def _flags(sample: Sample, num_turns: int, train_on: TrainOn) -> Sequence[bool]:
    if train_on == "all_assistant":
        return [True] * num_turns
    if train_on == "last":
        return [False] * (num_turns - 1) + [True]
    marks = sample.meta.get(MARKS)
    if not isinstance(marks, list) or len(marks) != num_turns or not all(isinstance(mark, bool) for mark in marks):
        raise DataError(
            f"sample {sample.place}: sft.train_on 'marked' needs the column {MARKS}, a list of a true or false for "
            f"each of its {num_turns} assistant turns (got {marks!r}); add it, or use all_assistant or last"
        )
    return marks
