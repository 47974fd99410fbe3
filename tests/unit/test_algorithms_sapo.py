"""SAPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_checks import AGGREGATIONS, check_invariance, check_random_batches, run, shared_settings

from mmrl.config.algorithm import KlConfig, SapoConfig


def test_loss_and_gradient_on_worked_numbers() -> None:
    # Two responses with scores 1 and -1, so advantages +-1 / (sqrt(2) + 1e-6); tau is 1 and 2.
    groups = [[oracle.response(1.0, [1.0, None, 1 + math.log(3)]), oracle.response(-1.0, [1 + math.log(2) / 2])]]
    advantage = 1 / (math.sqrt(2) + 1e-6)
    output, gradient = run(SapoConfig(temperature_negative=2.0), groups)
    # The gates are sigmoid(0) = 1/2, sigmoid(log 3) = 3/4 and sigmoid(log 2) = 2/3.
    value = advantage * (-4 * (1 / 2 + 3 / 4) / 2 + 2 * (2 / 3)) / 2
    assert output.loss.item() == pytest.approx(value, rel=1e-5)
    # The slopes are 4 * gate * (1 - gate) * r: at r = 1 exactly r.
    first, second = 1.0, 4 * (3 / 16) * (1 + math.log(3))
    third = 4 * (2 / 9) * (1 + math.log(2) / 2)
    expected = torch.tensor([[-first / 2, 0, -second / 2], [third, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, advantage * expected / 2, rtol=1e-6, atol=1e-9)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    check_random_batches(
        lambda draw: SapoConfig(
            **shared_settings(draw),
            temperature_positive=draw.choice([1.0, 3.0]),
            temperature_negative=draw.choice([1.05, 5.0]),
        ),
        oracle.grpo_advantages,
        plain.gated_loss,
    )


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(SapoConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01))
