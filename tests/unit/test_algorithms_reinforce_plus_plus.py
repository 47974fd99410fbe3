"""REINFORCE++: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
import random
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

from mmrl.config.algorithm import KlConfig, ReinforcePlusPlusConfig


def test_returns_are_discounted_and_whitened_over_the_tokens_of_the_batch() -> None:
    groups = [[oracle.response(1.0, [1.0, None, 1.0])], [oracle.response(0.0, [1.0])]]
    config = ReinforcePlusPlusConfig(gamma=0.5, kl=KlConfig())
    batch, _ = prepared(config, groups)
    # Returns 0.5, 1 and 0: mean 0.5, variance 0.25. The tool's answer takes no part, not even in the discount.
    torch.testing.assert_close(batch.advantages, torch.tensor([[0.0, 0, 1], [-1, 0, 0]]), rtol=1e-5, atol=1e-6)
    output, gradient = run(config, groups)
    assert output.loss.item() == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(gradient, -batch.advantages.double() / 3, rtol=1e-5, atol=1e-6)


def test_the_penalty_of_a_later_token_counts_for_an_earlier_one() -> None:
    groups = [[oracle.response(1.0, [1.0, None, 1.0])], [oracle.response(0.0, [1.0])]]
    groups[0][0].reference = [-1.5, 0.0, -2.0]
    batch, _ = prepared(ReinforcePlusPlusConfig(kl={"coef": 0.1}), groups)  # type: ignore[arg-type]
    # Rewards -0.05 and 1 - 0.1: returns 0.85 and 0.9, and 0. Mean 0.58333, variance 0.25583.
    returns = torch.tensor([[0.85, 0, 0.9], [0, 0, 0]])
    expected = torch.where(batch.response_mask > 0, (returns - 1.75 / 3) / math.sqrt(0.2558333), 0.0)
    torch.testing.assert_close(batch.advantages, expected, rtol=1e-5, atol=1e-6)


def test_the_kl_is_on_and_in_the_reward_unless_the_config_says_otherwise() -> None:
    assert ReinforcePlusPlusConfig().kl == KlConfig(coef=0.01, estimator="k1", where="reward")
    partly = ReinforcePlusPlusConfig.model_validate({"kl": {"coef": 0.2}}).kl
    assert (partly.coef, partly.estimator, partly.where) == (0.2, "k1", "reward")
    in_loss = ReinforcePlusPlusConfig.model_validate({"kl": {"where": "loss"}}).kl
    assert (in_loss.coef, in_loss.estimator, in_loss.where) == (0.01, "k3", "loss")


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    def config(draw: random.Random) -> ReinforcePlusPlusConfig:
        return ReinforcePlusPlusConfig(
            **shared_settings(draw), **clip_settings(draw), gamma=draw.choice([1.0, 0.9, 0.5])
        )

    totals = check_random_batches(config, plain.reinforce_plus_plus, oracle.clipped_loss)
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(ReinforcePlusPlusConfig(loss_aggregation=aggregation, entropy_coef=0.01))
