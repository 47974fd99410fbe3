"""CISPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_checks import (
    AGGREGATIONS,
    WORKED,
    check_invariance,
    check_random_batches,
    means,
    run,
    shared_settings,
)
from pydantic import ValidationError

from mmrl.config.algorithm import CispoConfig, KlConfig


def test_loss_and_gradient_on_worked_numbers() -> None:
    first, second = 0.5 / (math.sqrt(0.5) + 1e-6), 1 / (math.sqrt(2) + 1e-6)
    output, gradient = run(CispoConfig(cap=1.4), WORKED)
    # -A min(r, 1.4) for every sampled token; the ratios 1.5 and 2.0 are capped but keep a gradient.
    slopes = [
        [-1.4 * first, 0, -1.0 * first, -0.9 * first],
        [0.5 * first, 1.4 * first, 0, 0],
        [-1.0 * second, -1.1 * second, -1.3 * second, 0],
        [1.0 * second, 0, 0, 0],
    ]
    torch.testing.assert_close(gradient, torch.tensor(slopes, dtype=torch.float64) / 9, rtol=1e-6, atol=1e-9)
    logprobs = [row.logprobs for group in WORKED for row in group]
    value = sum(
        slope * logprob
        for row, numbers in zip(slopes, logprobs, strict=True)
        for slope, logprob in zip(row, numbers, strict=False)
    )
    assert output.loss.item() == pytest.approx(value / 9, rel=1e-5)
    assert means(output)["actor/cap_fraction"] == pytest.approx(2 / 9)


def test_a_cap_below_one_is_refused() -> None:
    # 0.28 is what clip-higher calls its distance from 1; as a bound of the ratio it would silence every token.
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        CispoConfig(cap=0.28)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(
        lambda draw: CispoConfig(**shared_settings(draw), cap=draw.choice([1.2, 5.0])),
        oracle.grpo_advantages,
        plain.capped_loss,
    )
    assert totals["actor/cap_fraction"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(CispoConfig(loss_aggregation=aggregation, cap=1.3, kl=KlConfig(coef=0.1), entropy_coef=0.01))
