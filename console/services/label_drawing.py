"""Items to judge: prompts with answers, drawn so that everybody with the same address gets the same.

Pairs are two answers, rankings up to MAX_RANKED. Answers that read the same are one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal

from mmrl.jobs.marks import Answer, item_key
from mmrl.types import Sample

Way = Literal["pairs", "ranking"]
MAX_RANKED = 6
"""Answers that stand beside each other to be ranked: as many as a person keeps in mind and a page can hold."""


@dataclass(frozen=True, order=True)
class Candidate:
    """One answer that is judged. by: who made it, such as `RUN@STEP`; reward: None where there is none."""

    answer: Answer
    text: str
    reward: float | None
    by: str


@dataclass(frozen=True)
class Item:
    """A prompt and answers to it, in an order of their own that tells nothing."""

    prompt: Sample
    candidates: tuple[Candidate, ...]

    @cached_property
    def key(self) -> str:
        return item_key(self.prompt.id, self.answers)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return tuple(candidate.answer for candidate in self.candidates)

    def shown_for(self, user_id: str) -> tuple[int, ...]:
        """Places of the answers from left to right for this person: drawn for each item and person, and the same at
        each look, so that a reload tells nothing."""
        places = list(range(len(self.candidates)))
        random.Random(f"side {user_id} {self.key}").shuffle(places)
        return tuple(places)


@dataclass(frozen=True)
class Drawing:
    """Which of all items are judged. num: at most so many; None for all. only_differing: where not all rewards are
    equal, so that there is something to tell apart."""

    way: Way = "pairs"
    num: int | None = 20
    only_differing: bool = False


@dataclass(frozen=True, eq=False)
class ItemPool:
    """Prompts with all answers to each. What was drawn of them once is kept with them, since it never changes."""

    groups: tuple[tuple[Sample, tuple[Candidate, ...]], ...]
    _drawn: dict[tuple[Drawing, str], Sequence[Item]] = field(default_factory=dict, repr=False)

    def items(self, drawing: Drawing, seed: str) -> Sequence[Item]:
        if (drawing, seed) not in self._drawn:
            self._drawn[drawing, seed] = self._draw(drawing, seed)
        return self._drawn[drawing, seed]

    def _draw(self, drawing: Drawing, seed: str) -> Sequence[Item]:
        found = [item for prompt, candidates in self.groups for item in _items(prompt, candidates, drawing)]
        if drawing.only_differing:
            found = [item for item in found if len({each.reward for each in item.candidates}) > 1]
        random.Random(f"items {seed}").shuffle(found)
        return tuple(found[: drawing.num])

    @property
    def num_bytes(self) -> int:
        """About what it takes in memory, with as much again for what is drawn."""
        return 2 * sum(2_000 + sum(1_000 + 2 * len(each.text) for each in candidates) for _, candidates in self.groups)


def _items(prompt: Sample, candidates: Iterable[Candidate], drawing: Drawing) -> list[Item]:
    """Pairs: the first answer of one with the first of each other, their second ones, and so on; of one maker alone,
    two of its answers. A ranking: up to MAX_RANKED answers, one of each reward first."""
    draw = random.Random(f"drawn {prompt.id}")
    if drawing.way == "ranking":
        distinct = _distinct(candidates)
        draw.shuffle(distinct)
        chosen = _varied(distinct)[:MAX_RANKED]
        return [Item(prompt, tuple(sorted(chosen)))] if len(chosen) > 1 else []
    makers: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        makers.setdefault(candidate.answer.source, []).append(candidate)
    if len(makers) == 1:
        distinct = _distinct(candidates)
        draw.shuffle(distinct)
        chosen = _varied(distinct)[:2]
        return [Item(prompt, tuple(sorted(chosen)))] if len(chosen) > 1 else []
    return [
        Item(prompt, tuple(sorted(pair)))
        for one, other in combinations(makers.values(), 2)
        for pair in zip(one, other, strict=False)
        if pair[0].text != pair[1].text
    ]


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.text, candidate)
    return list(found.values())


def _varied(candidates: Sequence[Candidate]) -> list[Candidate]:
    """One of each reward first, then the others."""
    firsts: dict[float | None, Candidate] = {}
    for candidate in candidates:
        firsts.setdefault(candidate.reward, candidate)
    chosen = list(firsts.values())
    return [*chosen, *(candidate for candidate in candidates if candidate not in chosen)]
