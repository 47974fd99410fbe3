"""Values with the interval that they are known to.

The unit is the prompt: responses to one prompt are no independent draws, so they are averaged first and the interval
is over prompts (clustered standard errors, Miller 2024, 'Adding Error Bars to Evals', arXiv 2411.00640). Where every
prompt is right or wrong it is Wilson's; else Student's t over the prompts' values, within the bounds they can have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Literal

CONFIDENCE = 0.95

Method = Literal["wilson", "t", "none"]


@dataclass(frozen=True)
class Estimate:
    """value: a mean over `num` prompts. low, high: its interval at `CONFIDENCE`; None where one prompt, or
    prompts that all have the same value, tell nothing of it.

    method: `wilson` (Wilson 1927, for a share), `t` (Student, for a mean), `none`.
    """

    value: float
    low: float | None
    high: float | None
    num: int
    method: Method


def estimate(values: Sequence[float], *, bounds: tuple[float, float] | None = None) -> Estimate:
    """The mean of one value a prompt. bounds: what a value can be; (0, 1) for a share."""
    mean = fmean(values)
    if bounds == (0.0, 1.0) and all(value in (0.0, 1.0) for value in values):
        low, high = wilson(round(sum(values)), len(values))
        return Estimate(mean, low, high, len(values), "wilson")
    if len(values) < 2 or all(value == values[0] for value in values):
        return Estimate(mean, None, None, len(values), "none")
    half = t_quantile(len(values) - 1) * math.sqrt(variance(values) / len(values))
    low, high = mean - half, mean + half
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return Estimate(mean, low, high, len(values), "t")


def wilson(successes: float, num: int, *, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """(p + z²/2n ± z·sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n), z the normal quantile (Wilson 1927, JASA 22)."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = successes / num
    middle = share + z * z / (2 * num)
    half = z * math.sqrt(share * (1 - share) / num + z * z / (4 * num * num))
    scale = 1 + z * z / num
    low = 0.0 if successes == 0 else (middle - half) / scale
    high = 1.0 if successes == num else (middle + half) / scale
    return max(0.0, low), min(1.0, high)


def t_quantile(degrees: int, *, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))
