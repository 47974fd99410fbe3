"""PPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
import random
from dataclasses import replace
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
    means,
    prepared,
    run,
    shared_settings,
    with_values,
)

from mmrl.algorithms import build_algorithm
from mmrl.config.algorithm import KlConfig, PpoConfig

PLAIN = PpoConfig(lam=0.5, whiten=False)


def worked() -> oracle.Groups:
    """Two prompts of one response: one with a tool's answer in its middle, one padded."""
    return [
        [replace(oracle.response(1.0, [1.5, None, 1.0]), values=[0.5, 0.0, 0.2])],
        [replace(oracle.response(0.0, [0.5]), values=[0.4])],
    ]


def test_advantages_and_returns_on_worked_numbers() -> None:
    batch, _ = prepared(PLAIN, worked())
    assert batch.advantages is not None
    assert batch.returns is not None
    # Last token: 1 - 0.2. First: 0.2 - 0.5 + 0.5 * 0.8. The other response: 0 - 0.4.
    torch.testing.assert_close(batch.advantages, torch.tensor([[0.1, 0, 0.8], [-0.4, 0, 0]]))
    torch.testing.assert_close(batch.returns.float(), torch.tensor([[0.6, 0, 1.0], [0, 0, 0]]))


def test_whitening_changes_the_advantages_and_not_the_returns() -> None:
    batch, _ = prepared(PLAIN.model_copy(update={"whiten": True}), worked())
    assert batch.advantages is not None
    assert batch.returns is not None
    # 0.1, 0.8, -0.4: mean 1/6, unbiased variance 0.3633
    mean, std = 1 / 6, math.sqrt(0.3633333)
    expected = torch.tensor([[0.1 - mean, 0, 0.8 - mean], [-0.4 - mean, 0, 0]]) / std
    torch.testing.assert_close(batch.advantages, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(batch.returns.float(), torch.tensor([[0.6, 0, 1.0], [0, 0, 0]]))


def test_the_kl_is_taken_from_the_reward_of_each_token() -> None:
    groups = worked()
    groups[0][0].reference = [-1.5, 0.0, -1.25]
    config = PpoConfig(lam=0.5, whiten=False, kl=KlConfig(coef=0.1, estimator="k1", where="reward"))
    batch, _ = prepared(config, groups)
    assert batch.advantages is not None
    # Rewards -0.05 and 1 - 0.025: last 0.775, first -0.05 + 0.2 - 0.5 + 0.5 * 0.775.
    torch.testing.assert_close(batch.advantages[0], torch.tensor([0.0375, 0, 0.775]))


def test_loss_and_gradient_on_worked_numbers() -> None:
    output, gradient = run(PLAIN, worked())
    # -0.1 * 1.2 is clipped, -0.8 * 1, and 0.4 * 0.8 is clipped too.
    assert output.loss.item() == pytest.approx((-0.12 - 0.8 + 0.32) / 3)
    torch.testing.assert_close(gradient, torch.tensor([[0, 0, -0.8], [0, 0, 0]], dtype=torch.float64) / 3)
    assert means(output)["actor/clip_fraction_high"] == pytest.approx(1 / 3)


def test_the_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely() -> None:
    groups = [[replace(oracle.response(0.0, [5.0]), values=[0.4])]]
    output, gradient = run(PLAIN, groups)
    # 0.4 * 5 is bounded by 3 * 0.4.
    assert output.loss.item() == pytest.approx(1.2)
    assert not gradient.any()
    assert PpoConfig().dual_clip == 3.0


def test_a_critic_that_foretells_everything_leaves_nothing_to_learn() -> None:
    groups = [[replace(oracle.response(1.0, [1.0, None, 1.0]), values=[1.0, 0.0, 1.0])]]
    batch, _ = prepared(PpoConfig(whiten=False), groups)
    assert batch.advantages is not None
    assert not batch.advantages.any()
    assert torch.equal(batch.returns, batch.values)


def test_a_single_response_a_prompt_is_enough_and_is_kept() -> None:
    algorithm = build_algorithm(PpoConfig())
    kept, stats = algorithm.select(oracle.scored_groups(worked()))
    assert len(kept) == 2
    assert (stats.num_dropped_groups, stats.num_scored_groups) == (0, 0)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    def config(draw: random.Random) -> PpoConfig:
        return PpoConfig(
            **{**shared_settings(draw), **clip_settings(draw)},
            gamma=draw.choice([1.0, 0.9]),
            lam=draw.choice([0.0, 0.5, 0.95, 1.0]),
        )

    totals = check_random_batches(config, plain.ppo, oracle.clipped_loss, change_groups=with_values)
    assert totals["actor/clip_fraction_low"] > 20
    assert totals["actor/dual_clip_fraction"] > 5


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    config = PpoConfig(loss_aggregation=aggregation, kl={"coef": 0.1}, entropy_coef=0.01)  # type: ignore[arg-type]
    check_invariance(config, change_groups=with_values)
