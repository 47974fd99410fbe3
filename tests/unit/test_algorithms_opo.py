"""OPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

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

from mmrl.config.algorithm import KlConfig, OpoConfig


def test_the_baseline_weighs_responses_by_their_sampled_tokens() -> None:
    batch, _ = prepared(OpoConfig(), WORKED)
    assert batch.advantages is not None
    # Lengths 3 (a tool's answer does not count) and 2 with scores 1 and 0; lengths 3 and 1 with scores 3 and 1.
    expected = torch.tensor([[0.4, 0, 0.4, 0.4], [-0.6, -0.6, 0, 0], [0.5, 0.5, 0.5, 0], [-1.5, 0, 0, 0]])
    torch.testing.assert_close(batch.advantages, expected)
    # So weighted, the advantages of a group's tokens sum to zero.
    assert batch.advantages[:2].sum().item() == pytest.approx(0, abs=1e-6)


def test_loss_and_gradient_on_worked_numbers() -> None:
    output, gradient = run(OpoConfig(), WORKED)
    # Token losses with the clip to [0.8, 1.2]: -0.4 (1.2 + 1 + 0.9), 0.6 (0.8 + 2), -0.5 (1 + 1.1 + 1.2), 1.5
    assert output.loss.item() == pytest.approx((-1.24 + 1.68 - 1.65 + 1.5) / 4, rel=1e-5)
    expected = torch.tensor(
        [[0, 0, -0.4, -0.36], [0, 1.2, 0, 0], [-0.5, -0.55, 0, 0], [1.5, 0, 0, 0]], dtype=torch.float64
    )
    torch.testing.assert_close(gradient, expected / 4, rtol=1e-6, atol=1e-8)


def test_a_group_of_empty_responses_has_no_baseline_and_no_advantages() -> None:
    groups = [[oracle.response(1.0, []), oracle.response(0.0, [])], WORKED[0]]
    batch, _ = prepared(OpoConfig(), groups)
    assert batch.advantages is not None
    assert not batch.advantages[:2].any()
    assert batch.advantages[2].any()


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(
        lambda draw: OpoConfig(**shared_settings(draw), **clip_settings(draw)), plain.opo, oracle.clipped_loss
    )
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(OpoConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01))
