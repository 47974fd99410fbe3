"""VAPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import algorithms_oracle as oracle
import algorithms_plain as plain
import pytest
import torch
from algorithms_checks import AGGREGATIONS, check_invariance, clip_settings, prepared, run, shared_settings, with_values
from test_algorithms_ppo import worked

from mmrl.config.algorithm import VapoConfig


def plain_returns(row: oracle.Response, config: Any) -> list[float]:
    """What comes of the response from each sampled token on."""
    kl_coef = config.kl.coef if config.kl.where == "reward" else 0.0
    sampled = [index for index, bit in enumerate(row.mask) if bit]
    losses = [kl_coef * (row.old[index] - row.reference[index]) for index in sampled]
    return [row.score - sum(losses[place:]) for place in range(len(sampled))]


def plain_imitation(groups: oracle.Groups, config: Any) -> tuple[float, list[list[float]]]:
    """Loss and slopes of the likelihood of responses with a score above zero."""
    right = [row for group in groups for row in group if row.score > 0]
    num_tokens = max(sum(row.num_sampled for row in right), 1)
    weight = config.imitation_coef / num_tokens
    loss = -weight * sum(sum(row.logprobs) for row in right)
    slopes = [
        [-weight * sampled if row.score > 0 else 0.0 for sampled in row.mask] for group in groups for row in group
    ]
    return loss, slopes


def test_policy_and_critic_have_lambdas_of_their_own() -> None:
    # Length 2 with alpha 1: lambda 0.5, so the advantages of PPO's worked numbers. Length 1: lambda 0, -0.4 either way.
    batch, _ = prepared(VapoConfig(length_alpha=1.0, whiten=False), worked())
    assert batch.advantages is not None
    assert batch.returns is not None
    torch.testing.assert_close(batch.advantages, torch.tensor([[0.1, 0, 0.8], [-0.4, 0, 0]]))
    # The critic learns what came of each response: 1 and 0.
    torch.testing.assert_close(batch.returns.float(), torch.tensor([[1.0, 0, 1.0], [0, 0, 0]]))


def test_a_short_response_is_judged_by_the_critics_next_value() -> None:
    batch, _ = prepared(VapoConfig(whiten=False), worked())
    assert batch.advantages is not None
    # Up to 20 tokens 1 - 1 / (0.05 l) is at most 0: 0.2 - 0.5 and 1 - 0.2.
    torch.testing.assert_close(batch.advantages[0], torch.tensor([-0.3, 0, 0.8]))


def test_right_responses_are_imitated_by_the_mean_over_their_tokens() -> None:
    config = VapoConfig(length_alpha=1.0, whiten=False, clip_high=0.28)
    batch, stats = prepared(config, worked())
    assert batch.succeeded is not None
    assert batch.succeeded.tolist() == [1.0, 0.0]
    output, gradient = run(config, worked())
    imitation = -0.1 * float(stats.logprobs[0].detach().sum()) / 2
    assert output.loss.item() == pytest.approx((-0.1 * 1.28 - 0.8 + 0.32) / 3 + imitation)
    expected = torch.tensor([[-0.05, 0, -0.05 - 0.8 / 3], [0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected)
    assert output.sums["actor/imitation_loss"] == (pytest.approx(imitation), pytest.approx(1.0))
    without, _ = run(config.model_copy(update={"imitation_coef": 0.0}), worked())
    assert without.loss.item() == pytest.approx((-0.1 * 1.28 - 0.8 + 0.32) / 3)


def test_a_batch_without_a_right_response_imitates_nothing() -> None:
    groups = [[replace(oracle.response(0.0, [1.0, 1.0]), values=[0.1, 0.2])]]
    output, _ = run(VapoConfig(whiten=False), groups)
    assert output.sums["actor/imitation_loss"][0] == 0


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        config = VapoConfig(
            **{**shared_settings(draw), **clip_settings(draw)},
            length_alpha=draw.choice([0.05, 0.3, 1.0]),
            imitation_coef=draw.choice([0.0, 0.1]),
        )
        groups = with_values(oracle.random_groups(seed), seed)
        loss, slopes = oracle.update(groups, plain.vapo(groups, config), config, oracle.clipped_loss, response_limit=10)
        more, more_slopes = plain_imitation(groups, config)
        output, gradient = run(config, groups)
        width = gradient.shape[1]
        assert output.loss.item() == pytest.approx(loss + more, rel=1e-5, abs=1e-6), (seed, config)
        expected = oracle.padded(slopes, width) + oracle.padded(more_slopes, width)
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)
        batch, _ = prepared(config, groups)
        assert batch.returns is not None
        rows = [row for group in groups for row in group]
        for row, found, sampled in zip(rows, batch.returns, batch.response_mask, strict=True):
            assert found[sampled > 0].tolist() == pytest.approx(plain_returns(row, config), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    config = VapoConfig(loss_aggregation=aggregation, kl={"coef": 0.1}, entropy_coef=0.01)  # type: ignore[arg-type]
    check_invariance(config, change_groups=with_values)
