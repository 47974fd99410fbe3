"""Figures of a batch of rewards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev

from mmrl.types import RewardPart, RewardResult

_SUMMED = ("prompt_tokens", "completion_tokens", "cost")


def reward_metrics(results: Sequence[RewardResult]) -> dict[str, float]:
    """Means over the scores that exist; what is missing is counted beside them. Never NaN.

    reward/mean, reward/std: of the totals (std unbiased, 0 for a single one); left out where no response has a total.
    reward/missing: responses without a total.
    reward/<part>/mean: of the raw values; left out where there is none.
    reward/<part>/vetoed: responses whose total it overruled, where it is a veto.
    reward/<part>/failures: responses that it failed on.
    reward/<part>/ms: mean milliseconds.
    reward/<part>/<extra>: mean of a number that a user's function gave besides its score, over the responses that
        have it, and reward/<part>/<extra>/missing where some have not.
    reward/<part>/<extra>/sum: for what is paid for: prompt_tokens, completion_tokens and cost.
    """
    if not results:
        return {}
    totals = [result.total for result in results if result.total is not None]
    metrics = {"reward/missing": float(len(results) - len(totals))}
    if totals:
        metrics["reward/mean"] = fmean(totals)
        metrics["reward/std"] = stdev(totals) if len(totals) > 1 else 0.0
    parts: dict[str, list[RewardPart]] = defaultdict(list)
    for result in results:
        for part in result.parts:
            parts[part.name].append(part)
    for name, column in parts.items():
        metrics |= _part_metrics(f"reward/{name}", column)
    return metrics


def _part_metrics(prefix: str, column: Sequence[RewardPart]) -> dict[str, float]:
    values = [part.value for part in column if part.value is not None]
    metrics = {
        f"{prefix}/failures": float(sum(part.error is not None for part in column)),
        f"{prefix}/ms": fmean(part.ms for part in column),
    }
    if values:
        metrics[f"{prefix}/mean"] = fmean(values)
    if any(part.vetoes is not None for part in column):
        metrics[f"{prefix}/vetoed"] = float(sum(part.vetoes is True for part in column))
    for key in sorted({key for part in column for key in part.extras}):
        numbers = [number for part in column if isinstance(number := part.extras.get(key), float)]
        if numbers:
            metrics[f"{prefix}/{key}"] = fmean(numbers)
            if key in _SUMMED:
                metrics[f"{prefix}/{key}/sum"] = sum(numbers)
            if len(numbers) < len(column):
                metrics[f"{prefix}/{key}/missing"] = float(len(column) - len(numbers))
    return metrics
