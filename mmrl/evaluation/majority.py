"""What most people chose of two answers: the one rule for results, data sets of pairs, and the agreement of rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Literal

Majority = Literal["a", "b", "tie", "both_bad", "divided"]


def most_chosen(choices: Collection[Literal["a", "b", "tie", "both_bad"]]) -> Majority:
    """The choice of more than half of those who judged the pair; `divided` where none has so many.

    More than half and not merely most of all: where two of four found no answer better, the other two are no reason to
    train on one. Raises ValueError where nobody judged.
    """
    if not choices:
        raise ValueError("nobody judged these two answers, so most people chose nothing")
    choice, num = Counter(choices).most_common(1)[0]
    return choice if 2 * num > len(choices) else "divided"
