"""pass@k training: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

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
    clip_settings,
    prepared,
    run,
    shared_settings,
)

from mmrl.config.algorithm import KlConfig, PassAtKConfig


def test_only_the_best_response_learns_and_by_its_lead() -> None:
    groups = [
        [oracle.response(score, [1.0, None, 1.0]) for score in (0.2, 1.0, 0.7)],
        [oracle.response(score, [1.0]) for score in (1.0, 0.0, 1.0)],
    ]
    batch, _ = prepared(PassAtKConfig(), groups)
    assert batch.advantages is not None
    expected = torch.zeros(6, 3)
    expected[1] = torch.tensor([0.3, 0, 0.3])
    # Two are best in the second group: without either the other would still pass.
    torch.testing.assert_close(batch.advantages, expected)


def test_loss_and_gradient_on_worked_numbers() -> None:
    # Advantages 1 for the first response and 2 for the third, clip to [0.8, 1.2], the mean over four responses.
    output, gradient = run(PassAtKConfig(), WORKED)
    assert output.loss.item() == pytest.approx((-(1.2 + 1.0 + 0.9) - 2 * (1.0 + 1.1 + 1.2)) / 4, rel=1e-6)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[0, 2:] = torch.tensor([-1.0, -0.9])
    expected[2, :2] = torch.tensor([-2.0, -2.2])
    torch.testing.assert_close(gradient, expected / 4, rtol=1e-6, atol=1e-7)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(
        lambda draw: PassAtKConfig(**shared_settings(draw), **clip_settings(draw)),
        plain.pass_at_k,
        oracle.clipped_loss,
    )
    assert totals["actor/clip_fraction_high"] > 20
    # No advantage is negative, so nothing is clipped from below.
    assert totals["actor/clip_fraction_low"] == 0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(PassAtKConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01))
