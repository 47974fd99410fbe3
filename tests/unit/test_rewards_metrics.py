from __future__ import annotations

import math

import pytest

from mmrl.rewards import reward_metrics
from mmrl.types import RewardPart, RewardResult


def result(value: float | None, *, error: str | None = None, ms: float = 2.0, **extras: float | str) -> RewardResult:
    return RewardResult(value, (RewardPart("exact", value, 1.0, error=error, ms=ms, extras=extras),))


def test_missing_scores_are_counted_and_left_out_of_the_means() -> None:
    metrics = reward_metrics([result(0.5), result(None, error="nan"), result(None, error="nan", ms=6.0), result(0.8)])
    assert metrics == {
        "reward/mean": pytest.approx(0.65),
        "reward/std": pytest.approx(0.3 / math.sqrt(2)),
        "reward/missing": 2.0,
        "reward/exact/mean": pytest.approx(0.65),
        "reward/exact/failures": 2.0,
        "reward/exact/ms": 3.0,
    }


def test_without_any_score_there_is_no_mean_rather_than_nan() -> None:
    assert reward_metrics([result(None, error="x")]) == {
        "reward/missing": 1.0,
        "reward/exact/failures": 1.0,
        "reward/exact/ms": 2.0,
    }


def test_a_function_that_returned_none_is_missing_but_has_not_failed() -> None:
    metrics = reward_metrics([result(None), result(1.0)])
    assert (metrics["reward/missing"], metrics["reward/exact/failures"]) == (1.0, 0.0)


@pytest.mark.parametrize("reverse", [False, True])
def test_extras_that_only_some_samples_have_are_averaged_over_those(reverse: bool) -> None:
    results = [result(1.0, acc=1.0, pred="7"), result(0.0)]
    metrics = reward_metrics(results[::-1] if reverse else results)
    assert metrics["reward/exact/acc"] == 1.0
    assert metrics["reward/exact/acc/missing"] == 1.0
    assert "reward/exact/pred" not in metrics


def test_no_results_give_no_metrics() -> None:
    assert reward_metrics([]) == {}
