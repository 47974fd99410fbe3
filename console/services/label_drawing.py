"""Items to judge: prompts with answers, drawn so that everybody with the same address gets the same.

Pairs are two answers, rankings up to MAX_RANKED. Answers that read the same are one.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
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


@dataclass(frozen=True)
class Drawn:
    """items: what is judged. num_alike: left out since their answers read the same or were not kept. num_same_reward:
    left out since only answers with different rewards were asked for."""

    items: Sequence[Item]
    num_alike: int
    num_same_reward: int

    @property
    def left_out(self) -> str:
        """In a sentence; empty where nothing is."""
        reasons = [
            f"{num:,} whose {why}"
            for num, why in (
                (self.num_alike, "answers read the same or were not kept"),
                (self.num_same_reward, "rewards do not differ"),
            )
            if num
        ]
        num = len(self.items) + self.num_alike + self.num_same_reward
        there = f"Of {num:,} there are {len(self.items):,} to judge"
        return f"{there}; left out are {' and '.join(reasons)}." if reasons else ""


@dataclass(frozen=True, eq=False)
class ItemPool:
    """Prompts with all answers to each. What was drawn of them once is kept with them, since it never changes."""

    groups: tuple[tuple[Sample, tuple[Candidate, ...]], ...]
    _drawn: dict[tuple[Drawing, str], Drawn] = field(default_factory=dict, repr=False)

    def draw(self, drawing: Drawing, seed: str) -> Drawn:
        """Of so many that `num` was reached nothing is left out."""
        if (drawing, seed) not in self._drawn:
            self._drawn[drawing, seed] = self._draw(drawing, seed)
        return self._drawn[drawing, seed]

    def _draw(self, drawing: Drawing, seed: str) -> Drawn:
        possible = [
            Item(prompt, answers)
            for prompt, candidates in self.groups
            for answers in _to_judge(prompt, candidates, drawing)
        ]
        differing = [item for item in possible if len({each.text for each in item.candidates}) > 1]
        found = list(differing)
        if drawing.only_differing:
            found = [item for item in found if len({each.reward for each in item.candidates}) > 1]
        random.Random(f"items {seed}").shuffle(found)
        if drawing.num is not None and len(found) >= drawing.num:
            return Drawn(tuple(found[: drawing.num]), 0, 0)
        return Drawn(tuple(found), len(possible) - len(differing), len(differing) - len(found))

    @property
    def num_bytes(self) -> int:
        """About what it takes in memory, with as much again for what is drawn."""
        return 2 * sum(2_000 + sum(1_000 + 2 * len(each.text) for each in candidates) for _, candidates in self.groups)


def _to_judge(prompt: Sample, candidates: Iterable[Candidate], drawing: Drawing) -> Iterator[tuple[Candidate, ...]]:
    """Pairs: the first answer of one with the first of each other, their second ones, and so on; of one maker alone,
    two of its answers. A ranking: up to MAX_RANKED answers, one of each reward first. Some may have nothing to tell
    apart: fewer than two answers, or two that read the same."""
    draw = random.Random(f"drawn {prompt.id}")
    makers: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        makers.setdefault(candidate.answer.source, []).append(candidate)
    if drawing.way == "ranking" or len(makers) < 2:
        distinct = _distinct(candidates)
        draw.shuffle(distinct)
        yield tuple(sorted(_varied(distinct)[: MAX_RANKED if drawing.way == "ranking" else 2]))
        return
    for one, other in combinations(makers.values(), 2):
        for pair in zip(one, other, strict=False):
            yield tuple(sorted(pair))


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
