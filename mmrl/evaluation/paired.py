"""Is one checkpoint better than another? The same prompts, so the difference is taken prompt by prompt.

The test is the sign-flip permutation test on the prompts' differences (Fisher 1935): if the two are alike, a
difference is as likely to have one sign as the other. It asks for no distribution, is exact for right-or-wrong values
(where it is McNemar's exact test) as for means, and so calls two like checkpoints different in at most 5 % of tries.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from mmrl.errors import DataError
from mmrl.evaluation.intervals import estimate
from mmrl.evaluation.outcomes import PromptOutcome
from mmrl.evaluation.summary import value_of

LEVEL = 0.05
NUM_DRAWS = 9999
"""Sign patterns that are drawn where the differences lie on no grid that all patterns could be counted on."""

_EQUAL = 1e-9
_MAX_PARTS = 64


@dataclass(frozen=True)
class PairedResult:
    """difference: of the second less the first, mean over the prompts that both have. low, high: its 95 % interval, of
    shares cut at -1 and 1.

    p_value: two-sided. better, worse, same: prompts by the sign of their difference. only_first, only_second: prompts
    that the other one lacks, which count in nothing.
    """

    metric: str
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    p_value: float
    num_prompts: int
    better: int
    worse: int
    same: int
    only_first: int
    only_second: int

    @property
    def is_different(self) -> bool:
        return self.p_value < LEVEL

    @property
    def verdict(self) -> str:
        if not self.is_different:
            return f"no difference that {self.num_prompts} prompts could show (p = {self.p_value:.3g})"
        return f"the second is {'better' if self.difference > 0 else 'worse'} (p = {self.p_value:.3g})"


def compare_outcomes(
    first: Sequence[PromptOutcome], second: Sequence[PromptOutcome], *, metric: str = "accuracy"
) -> PairedResult:
    """metric: accuracy, reward, pass@K or maj@K. Raises DataError where no prompt has it in both."""
    before, after = _values(first, metric), _values(second, metric)
    shared = [prompt for prompt in before if prompt in after]
    if not shared:
        raise DataError(
            f"nothing to compare: no prompt has {metric} in both evaluations ({len(before)} have it in the first, "
            f"{len(after)} in the second); evaluate both on the same panel"
        )
    differences = [after[prompt] - before[prompt] for prompt in shared]
    interval = estimate(differences, bounds=None if metric == "reward" else (-1.0, 1.0))
    return PairedResult(
        metric=metric,
        first=fmean(before[prompt] for prompt in shared),
        second=fmean(after[prompt] for prompt in shared),
        difference=interval.value,
        low=interval.low,
        high=interval.high,
        p_value=sign_flip_p_value(differences),
        num_prompts=len(shared),
        better=sum(value > _EQUAL for value in differences),
        worse=sum(value < -_EQUAL for value in differences),
        same=sum(abs(value) <= _EQUAL for value in differences),
        only_first=len(before) - len(shared),
        only_second=len(after) - len(shared),
    )


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Share of sign patterns whose sum is at least as far from 0 as the one that was seen.

    Of differences that are multiples of some 1/n, as those of shares are, all patterns are counted. Of others some are
    drawn, with that of the data among them, which keeps the level (Phipson and Smyth 2010); the draws follow from the
    data alone, so the same data gives the same value.
    """
    signed = [value for value in differences if abs(value) > _EQUAL]
    if not signed:
        return 1.0
    for parts in range(1, _MAX_PARTS + 1):
        steps = [round(value * parts) for value in signed]
        if all(abs(value * parts - step) < _EQUAL * parts for value, step in zip(signed, steps, strict=True)):
            return _counted_p_value([abs(step) for step in steps], abs(sum(steps)))
    return _drawn_p_value([abs(value) for value in signed], abs(sum(signed)) - _EQUAL * len(signed))


def _counted_p_value(sizes: Sequence[int], seen: int) -> float:
    """The distribution of the sum under random signs, one difference after the other."""
    import numpy as np

    total = sum(sizes)
    chance = np.zeros(2 * total + 1)
    chance[total] = 1.0
    for size in sizes:
        chance = 0.5 * (np.roll(chance, size) + np.roll(chance, -size))
    sums = np.abs(np.arange(-total, total + 1))
    return float(min(1.0, chance[sums >= seen].sum()))


def _drawn_p_value(sizes: Sequence[float], seen: float) -> float:
    import numpy as np

    ordered = np.sort(np.array(sizes))
    seed = random.Random(repr([round(size, 9) for size in ordered.tolist()])).getrandbits(64)
    draw = np.random.default_rng(seed)
    extreme, left = 0, NUM_DRAWS
    while left:
        rows = min(left, max(1, 2_000_000 // len(ordered)))
        signs = draw.integers(0, 2, (rows, len(ordered)), dtype=np.int8) * 2 - 1
        extreme += int((np.abs(signs @ ordered) >= seen).sum())
        left -= rows
    return (extreme + 1) / (NUM_DRAWS + 1)


def _values(outcomes: Sequence[PromptOutcome], metric: str) -> Mapping[str, float]:
    """A prompt that comes more than once counts once, with the mean of its values."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        value = value_of(outcome, metric)
        if value is not None:
            found.setdefault(outcome.prompt_id, []).append(value)
    return {prompt: fmean(values) for prompt, values in found.items()}
