"""How far people agree who judged the same things.

Cohen's kappa for two (Cohen 1960): (p_o - p_e) / (1 - p_e), with p_e from each one's own shares of the categories.
Krippendorff's alpha for any number, with nominal categories and things that not all have judged (Krippendorff 2011):
1 - D_o / D_e over the coincidences of values within things that at least two have judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


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
    observed = sum(one == other for one, other in zip(first, second, strict=True)) / count
    shares, other_shares = Counter(first), Counter(second)
    expected = sum(shares[category] * other_shares[category] for category in shares) / count**2
    return None if expected == 1.0 else (observed - expected) / (1 - expected)


def krippendorff_alpha(judgements: Mapping[str, Mapping[str, str]]) -> float | None:
    """judgements: of each thing, each judge's category. None where no thing has two, or all values are the same."""
    units = [Counter(values.values()) for values in judgements.values() if len(values) > 1]
    totals: Counter[str] = sum(units, Counter())
    num_values = sum(totals.values())
    if not num_values:
        return None
    observed = sum(_disagreeing_pairs(unit) / (sum(unit.values()) - 1) for unit in units) / num_values
    expected = _disagreeing_pairs(totals) / (num_values * (num_values - 1))
    return None if expected == 0.0 else 1 - observed / expected


def _disagreeing_pairs(counts: Counter[str]) -> int:
    """Ordered pairs of values that differ."""
    total = sum(counts.values())
    return sum(number * (total - number) for number in counts.values())
