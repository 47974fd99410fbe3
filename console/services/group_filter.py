"""What groups of responses may be asked for: a text, a condition, a range of the reward or of one of its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from mmrl.runs.records import GroupRecord, ResponseRecord

ONLY: Mapping[str, str] = {
    "truncated": "cut at the limit",
    "no-spread": "all rewards equal",
    "failed": "a reward failed",
    "disagree": "reward parts disagree",
    "mixed": "some responses best, not all",
}
"""Conditions that a group may be asked for, by the word in the address."""


@dataclass(frozen=True)
class GroupFilter:
    """find: text in a prompt, answer or response, whatever its case. only: one of ONLY. part: the reward part whose
    value is to lie between low and high (both count) in some response; `total` is the whole reward."""

    find: str = ""
    only: str | None = None
    part: str | None = None
    low: float | None = None
    high: float | None = None

    NAMES = ("find", "only", "part", "low", "high")

    @classmethod
    def of_address(cls, words: Mapping[str, str]) -> GroupFilter:
        """What is no number or no condition counts as not given."""
        only = words.get("only")
        return cls(
            words.get("find", ""),
            only if only in ONLY else None,
            words.get("part") or None,
            _number(words.get("low")),
            _number(words.get("high")),
        )

    def address(self) -> dict[str, str]:
        given = {name: getattr(self, name) for name in self.NAMES}
        return {name: str(value) for name, value in given.items() if value not in (None, "")}

    def fits(self, group: GroupRecord) -> bool:
        return self._has_text(group) and self._is_of_kind(group) and self._is_in_range(group)

    def _has_text(self, group: GroupRecord) -> bool:
        wanted = self.find.casefold()
        return not wanted or any(wanted in text.casefold() for text in _texts(group))

    def _is_of_kind(self, group: GroupRecord) -> bool:
        tests = {
            "truncated": lambda: any(response.is_truncated for response in group.responses),
            "no-spread": lambda: len({response.reward for response in group.responses}) == 1,
            "failed": lambda: any(response.reward is None for response in group.responses),
            "disagree": lambda: bool(disagreements(group)),
            "mixed": lambda: 0 < _num_best(group) < len(group.responses),
        }
        return self.only is None or bool(tests[self.only]())

    def _is_in_range(self, group: GroupRecord) -> bool:
        if self.part is None or (self.low is None and self.high is None):
            return True
        values = [value_of(response, self.part) for response in group.responses]
        return any(
            value is not None and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)
            for value in values
        )


def value_of(response: ResponseRecord, part: str) -> float | None:
    """Of one reward part, or of the `total`; None where it failed or was not asked for."""
    if part == "total":
        return response.reward
    return next((each.value for each in response.parts if each.name == part), None)


def disagreements(group: GroupRecord) -> list[tuple[str, str]]:
    """Pairs of reward parts that order two responses of the group oppositely."""
    names = list(dict.fromkeys(part.name for response in group.responses for part in response.parts))
    pairs = list(combinations(group.responses, 2))
    return [names_of for names_of in combinations(names, 2) if any(_opposed(one, two, names_of) for one, two in pairs)]


def _opposed(one: ResponseRecord, two: ResponseRecord, names: tuple[str, str]) -> bool:
    signs = []
    for name in names:
        first, second = value_of(one, name), value_of(two, name)
        if first is None or second is None or first == second:
            return False
        signs.append(first > second)
    return signs[0] is not signs[1]


def _num_best(group: GroupRecord) -> int:
    """How many responses have the group's highest reward, unless all rewards are equal: then none counts."""
    rewards = [response.reward for response in group.responses if response.reward is not None]
    return rewards.count(max(rewards)) if len(set(rewards)) > 1 else 0


def _texts(group: GroupRecord) -> list[str]:
    prompt = [message.text for message in group.prompt or ()]
    responses = [response.text or "" for response in group.responses]
    return [*prompt, group.answer or "", *responses]


def _number(text: str | None) -> float | None:
    try:
        number = None if text is None else float(text)
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None
