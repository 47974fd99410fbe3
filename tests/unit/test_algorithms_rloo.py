"""RLOO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

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

from mmrl.config.algorithm import KlConfig, RlooConfig


def test_each_response_is_compared_with_the_mean_of_the_others() -> None:
    groups = [[oracle.response(score, [1.0, None, 1.0]) for score in (1.0, 0.0, 0.5)]]
    batch, _ = prepared(RlooConfig(), groups)
    assert batch.advantages is not None
    # 1 - 0.25, 0 - 0.75, 0.5 - 0.5
    expected = torch.tensor([[0.75, 0, 0.75], [-0.75, 0, -0.75], [0, 0, 0]])
    torch.testing.assert_close(batch.advantages, expected)


def test_loss_and_gradient_on_worked_numbers() -> None:
    # Advantages 1, -1, 2, -2; clip to [0.8, 1.2]; sums of token losses by response: -(1.2 + 1 + 0.9), 0.8 + 2,
    # -2 (1 + 1.1 + 1.2), 2; the mean over the four responses.
    output, gradient = run(RlooConfig(), WORKED)
    assert output.loss.item() == pytest.approx((-3.1 + 2.8 - 6.6 + 2.0) / 4, rel=1e-6)
    expected = torch.tensor([[0, 0, -1.0, -0.9], [0, 2.0, 0, 0], [-2, -2.2, 0, 0], [2, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected / 4, rtol=1e-6, atol=1e-9)


def test_the_first_update_has_the_gradient_of_reinforce() -> None:
    groups = [[oracle.response(1.0, [1.0, None, 1.0]), oracle.response(0.0, [1.0])]]
    _, gradient = run(RlooConfig(), groups, first_update=True)
    torch.testing.assert_close(gradient, torch.tensor([[-0.5, 0, -0.5], [0.5, 0, 0]], dtype=torch.float64))


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(
        lambda draw: RlooConfig(**shared_settings(draw), **clip_settings(draw)), plain.rloo, oracle.clipped_loss
    )
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(RlooConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01))
