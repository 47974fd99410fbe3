"""How far a reward orders answers as people do.

The unit is a pair of answers to one prompt. Where people prefer one and the reward gives the two different values, it
agrees or disagrees; the share that agrees has Wilson's interval over these pairs. Equal values are counted apart, since
they say nothing of the pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mmrl.evaluation.intervals import wilson

Preferred = Literal["a", "b", "tie"]
_SAME = 1e-9


@dataclass(frozen=True)
class Judged:
    """people: the answer that most of them prefer; `tie` where they find both as good or both bad, or are divided.

    a, b: what the reward gives; None where it has no value.
    """

    people: Preferred
    a: float | None
    b: float | None


@dataclass(frozen=True)
class OrderAgreement:
    """reward: its name. agrees, disagrees: pairs that people and the reward both order. reward_ties: people prefer one,
    the reward gives both the same. missing: people prefer one, and an answer has no value. people_ties: they prefer
    none.

    share: agrees / (agrees + disagrees), with low and high at 95 %; None where there is no such pair.
    """

    reward: str
    agrees: int
    disagrees: int
    reward_ties: int
    missing: int
    people_ties: int
    share: float | None
    low: float | None
    high: float | None


def order_agreement(reward: str, pairs: Iterable[Judged]) -> OrderAgreement:
    counts = Counter(map(_kind, pairs))
    agrees, disagrees = counts["agrees"], counts["disagrees"]
    num = agrees + disagrees
    low, high = wilson(agrees, num) if num else (None, None)
    return OrderAgreement(
        reward=reward,
        agrees=agrees,
        disagrees=disagrees,
        reward_ties=counts["reward_ties"],
        missing=counts["missing"],
        people_ties=counts["people_ties"],
        share=agrees / num if num else None,
        low=low,
        high=high,
    )


def most_preferred(choices: Sequence[str]) -> Preferred:
    """Of several people's choices of one pair (`a`, `b`, `tie`, `both_bad`); `tie` where no answer has most of them."""
    counts = Counter(choice if choice in ("a", "b") else "tie" for choice in choices).most_common(2)
    is_divided = not counts or (len(counts) > 1 and counts[0][1] == counts[1][1])
    return "tie" if is_divided else counts[0][0]  # type: ignore[return-value]


def _kind(pair: Judged) -> str:
    if pair.people == "tie":
        return "people_ties"
    if pair.a is None or pair.b is None:
        return "missing"
    if abs(pair.a - pair.b) <= _SAME:
        return "reward_ties"
    return "agrees" if (pair.a > pair.b) == (pair.people == "a") else "disagrees"
