"""REINFORCE++ with a group baseline: worked numbers, a plain float64 version, invariance to how a batch is cut up."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_checks import (
    AGGREGATIONS,
    check_invariance,
    check_random_batches,
    clip_settings,
    prepared,
    run,
    shared_settings,
)

from mmrl.algorithms.advantages import whiten
from mmrl.config.algorithm import KlConfig, ReinforcePlusPlusBaselineConfig


def test_whitening_is_over_masked_positions_with_unbiased_variance() -> None:
    values = torch.tensor([[1.0, 99.0, 3.0], [5.0, -99.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[1.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    # 1, 3, 5: mean 3, variance 4
    expected = torch.tensor([[-1.0, 0, 0], [1, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(whiten(values, mask), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("num_positions", [0, 1])
def test_fewer_than_two_positions_are_not_whitened(num_positions: int) -> None:
    values, mask = torch.tensor([[3.0, 7.0]]), torch.tensor([[float(num_positions), 0.0]])
    assert whiten(values, mask).tolist() == [[3.0 * num_positions, 0.0]]


def test_advantages_on_worked_numbers() -> None:
    # Centred scores 1 and -1 in the first group (2 and 1 sampled tokens), 0 and 0 in the second (1 and 0 tokens).
    groups = [
        [oracle.response(2.0, [1.0, None, 1.0]), oracle.response(0.0, [1.0])],
        [oracle.response(5.0, [1.0]), oracle.response(5.0, [])],
    ]
    batch, _ = prepared(ReinforcePlusPlusBaselineConfig(), groups)
    assert batch.advantages is not None
    # Tokens 1, 1, -1, 0: mean 0.25, variance (2 * 0.5625 + 1.5625 + 0.0625) / 3 = 11 / 12
    std = math.sqrt(11 / 12)
    expected = torch.tensor([[0.75, 0, 0.75], [-1.25, 0, 0], [-0.25, 0, 0], [0, 0, 0]]) / std
    torch.testing.assert_close(batch.advantages, expected)
    output, gradient = run(ReinforcePlusPlusBaselineConfig(), groups)
    torch.testing.assert_close(gradient, -expected.double() / 4, rtol=1e-6, atol=1e-8)
    assert output.loss.item() == pytest.approx(0, abs=1e-6)


def test_a_batch_without_any_spread_gives_exactly_zero() -> None:
    groups = [[oracle.response(0.1, [1.0, 1.0]), oracle.response(0.1, [1.0])] for _ in range(3)]
    batch, _ = prepared(ReinforcePlusPlusBaselineConfig(), groups)
    assert batch.advantages is not None
    assert not batch.advantages.any()


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(
        lambda draw: ReinforcePlusPlusBaselineConfig(**shared_settings(draw), **clip_settings(draw)),
        plain.reinforce_plus_plus_baseline,
        oracle.clipped_loss,
    )
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(
        ReinforcePlusPlusBaselineConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01)
    )
