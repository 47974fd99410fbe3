"""GPG: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

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
    prepared,
    run,
    shared_settings,
)
from pydantic import ValidationError

from mmrl.config.algorithm import GpgConfig, KlConfig


def test_loss_and_gradient_on_worked_numbers() -> None:
    # A third group without spread: advantages +-0.5 and +-1 are scaled by 3 / 2; 9 + 1 + 1 tokens.
    groups = [*WORKED, [oracle.response(1.0, [1.0]), oracle.response(1.0, [1.0])]]
    output, gradient = run(GpgConfig(), groups)
    expected = torch.zeros(6, 4, dtype=torch.float64)
    expected[0] = torch.tensor([-0.75, 0, -0.75, -0.75])
    expected[1, :2] = 0.75
    expected[2, :3] = -1.5
    expected[3, 0] = 1.5
    torch.testing.assert_close(gradient, expected / 11, rtol=1e-6, atol=1e-9)
    sums = [sum(row.logprobs) for group in WORKED for row in group]
    value = -0.75 * sums[0] + 0.75 * sums[1] - 1.5 * sums[2] + 1.5 * sums[3]
    assert output.loss.item() == pytest.approx(value / 11, rel=1e-5)


def test_a_penalty_in_the_reward_makes_no_spread_of_a_group() -> None:
    """Two groups, one with equal scores; its rows differ from the reference, which a k1 term in the reward feels."""
    level = [oracle.response(1.0, [1.2]), oracle.response(1.0, [0.9])]
    groups = [[oracle.response(1.0, [1.0]), oracle.response(0.0, [1.0])], level]
    for kl in (KlConfig(), KlConfig(coef=1e-4, where="reward", estimator="k1")):
        batch, _ = prepared(GpgConfig(kl=kl), groups)
        assert batch.advantages is not None
        assert batch.advantages[:2, 0].tolist() == pytest.approx([1.0, -1.0], abs=1e-3), "scaled by 2 / 1"


def test_a_batch_without_any_spread_gives_zero() -> None:
    groups = [[oracle.response(1.0, [1.2]), oracle.response(1.0, [0.9])]] * 2
    output, gradient = run(GpgConfig(), groups)
    assert output.loss.item() == 0
    assert not gradient.any()


def test_scaling_and_dropping_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="does not go with algorithm 'gpg'"):
        GpgConfig(drop_groups_without_spread=True)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    check_random_batches(lambda draw: GpgConfig(**shared_settings(draw)), plain.gpg, plain.plain_loss)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(GpgConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01))
