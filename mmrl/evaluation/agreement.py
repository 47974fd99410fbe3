"""How far people agree who judged the same things.

Cohen's kappa for two (Cohen 1960): (p_o - p_e) / (1 - p_e), with p_e from each one's own shares of the categories.
Krippendorff's alpha for any number, with nominal categories and things that not all have judged (Krippendorff 2011):
1 - D_o / D_e over the coincidences of values within things that at least two have judged.

How sure either is: Wilson's interval of the agreement that was observed (p_o, or 1 - D_o) over the things judged,
carried through the formula with the agreement by chance held where it is, as Cohen's own standard error does. Unlike a
bootstrap it has a width where all agree, which a few things often do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mmrl.evaluation.intervals import wilson


@dataclass(frozen=True)
class Agreement:
    """value: kappa or alpha; None where it is not defined. low, high: its 95 % interval. num: things that two or more
    judged, each counted once however many answers it compares."""

    value: float | None
    low: float | None
    high: float | None
    num: int


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float | None:
    """Of two people's categories for the same things in the same order; 1 is full agreement, 0 that of chance. None
    where nothing was judged, or both only ever chose one and the same category, where chance explains all.

    Raises ValueError for sequences of different lengths.
    """
    count = len(first)
    if count != len(second):
        raise ValueError(f"both have to judge the same things: {count} and {len(second)} categories")
    if not count:
        return None
    observed, expected = _observed_and_expected(first, second)
    return None if expected == 1.0 else (observed - expected) / (1 - expected)


def kappa_with_interval(first: Sequence[str], second: Sequence[str], *, num: int | None = None) -> Agreement:
    """num: how many independent things the categories are of, where several are of one; their number unless given."""
    num = len(first) if num is None else num
    value = cohen_kappa(first, second)
    if value is None:
        return Agreement(None, None, None, num)
    observed, expected = _observed_and_expected(first, second)
    low, high = ((share - expected) / (1 - expected) for share in wilson(observed * num, num))
    return Agreement(value, low, high, num)


def krippendorff_alpha(judgements: Mapping[str, Mapping[str, str]]) -> float | None:
    """judgements: of each thing, each judge's category. None where no thing has two, or all values are the same."""
    found = _disagreements(judgements)
    return None if found is None or found[1] == 0.0 else 1 - found[0] / found[1]


def alpha_with_interval(judgements: Mapping[str, Mapping[str, str]], *, num: int | None = None) -> Agreement:
    """num: as in `kappa_with_interval`; by itself the number of things that at least two have judged."""
    num = sum(len(values) > 1 for values in judgements.values()) if num is None else num
    value = krippendorff_alpha(judgements)
    found = _disagreements(judgements)
    if value is None or found is None:
        return Agreement(None, None, None, num)
    observed, expected = found
    low, high = (1 - (1 - share) / expected for share in wilson((1 - observed) * num, num))
    return Agreement(value, low, high, num)


def _observed_and_expected(first: Sequence[str], second: Sequence[str]) -> tuple[float, float]:
    """The shares of agreement: p_o and p_e."""
    count = len(first)
    observed = sum(one == other for one, other in zip(first, second, strict=True)) / count
    shares, other_shares = Counter(first), Counter(second)
    return observed, sum(shares[category] * other_shares[category] for category in shares) / count**2


def _disagreements(judgements: Mapping[str, Mapping[str, str]]) -> tuple[float, float] | None:
    """D_o and D_e; None where no thing has two values."""
    units = [Counter(values.values()) for values in judgements.values() if len(values) > 1]
    totals: Counter[str] = sum(units, Counter())
    num_values = sum(totals.values())
    if not num_values:
        return None
    observed = sum(_disagreeing_pairs(unit) / (sum(unit.values()) - 1) for unit in units) / num_values
    return observed, _disagreeing_pairs(totals) / (num_values * (num_values - 1))


def _disagreeing_pairs(counts: Counter[str]) -> int:
    """Ordered pairs of values that differ."""
    total = sum(counts.values())
    return sum(number * (total - number) for number in counts.values())
