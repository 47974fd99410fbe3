"""GRPO and Dr. GRPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch
from algorithms_checks import (
    AGGREGATIONS,
    WORKED,
    check_invariance,
    check_random_batches,
    clip_settings,
    means,
    prepared,
    run,
    shared_settings,
)

from mmrl.algorithms import build_algorithm
from mmrl.batch import GroupBatch, TokenStats
from mmrl.config.algorithm import DrGrpoConfig, GrpoConfig, KlConfig


def test_dr_grpo_on_worked_numbers() -> None:
    # Advantages 0.5, -0.5, 1, -1; clip to [0.8, 1.28]; losses of the tokens by response:
    #   -0.64 . -0.5 -0.45 | 0.4 1.0 | -1 -1.1 -1.28 | 1        sums -1.59, 1.4, -3.38, 1: in all -2.57
    expected = {
        "token_mean": -2.57 / 9,
        "sequence_mean_token_sum": -2.57 / 4,
        "sequence_mean_token_mean": (-0.53 + 0.7 - 3.38 / 3 + 1) / 4,
        "constant": -2.57 / 40,
    }
    for aggregation, value in expected.items():
        output, _ = run(DrGrpoConfig(clip_high=0.28, loss_aggregation=aggregation), WORKED)  # type: ignore[arg-type]
        assert output.loss.item() == pytest.approx(value, rel=1e-5)


def test_dr_grpo_gradient_on_worked_numbers() -> None:
    _, gradient = run(DrGrpoConfig(clip_high=0.28), WORKED)
    # -A r for tokens within the bounds, zero for clipped ones, over 4 responses * limit 10.
    expected = torch.tensor([[0, 0, -0.5, -0.45], [0, 1.0, 0, 0], [-1, -1.1, 0, 0], [1, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected / 40, rtol=1e-6, atol=1e-9)


def test_dr_grpo_metrics_on_worked_numbers() -> None:
    output, _ = run(DrGrpoConfig(clip_high=0.28, dual_clip=1.5), WORKED)
    values = means(output)
    # The dual clip takes the loss of the token with A -0.5 and ratio 2 from 1.0 to 0.75.
    assert values["actor/policy_loss"] == pytest.approx((-2.57 - 0.25) / 40, rel=1e-6)
    assert values["actor/clip_fraction_low"] == pytest.approx(1 / 9)
    assert values["actor/clip_fraction_high"] == pytest.approx(2 / 9)
    assert values["actor/dual_clip_fraction"] == pytest.approx(1 / 9)
    assert values["actor/ratio_mean"] == pytest.approx(10.3 / 9)
    assert output.maxima["actor/ratio_max"] == pytest.approx(2.0)
    log_sum = math.log(1.5 * 1.0 * 0.9 * 0.5 * 2.0 * 1.0 * 1.1 * 1.3 * 1.0)
    assert values["actor/approx_kl"] == pytest.approx((10.3 - 9 - log_sum) / 9)
    assert values["actor/entropy"] == pytest.approx(0.5)
    assert values["actor/entropy_estimate"] == pytest.approx((9 - log_sum) / 9)


def test_grpo_on_worked_numbers() -> None:
    # Advantages +-0.5 / (sqrt(0.5) + 1e-6) and +-1 / (sqrt(2) + 1e-6); the paper's mean over sequences of token means.
    first, second = 0.5 / (math.sqrt(0.5) + 1e-6), 1 / (math.sqrt(2) + 1e-6)
    batch, _ = prepared(GrpoConfig(), WORKED)
    assert batch.advantages is not None
    expected = torch.tensor(
        [[first, 0, first, first], [-first, -first, 0, 0], [second, second, second, 0], [-second, 0, 0, 0]]
    )
    torch.testing.assert_close(batch.advantages, expected)
    output, _ = run(GrpoConfig(clip_high=0.28), WORKED)
    value = first * (-(1.28 + 1.0 + 0.9) / 3 + (0.8 + 2.0) / 2) + second * (-(1.0 + 1.1 + 1.28) / 3 + 1.0)
    assert output.loss.item() == pytest.approx(value / 4, rel=1e-6)


def test_kl_and_entropy_terms_on_worked_numbers() -> None:
    groups = [[oracle.response(1.0, [1.0, None, 2.0]), oracle.response(1.0, [1.0])]]
    groups[0][0].reference = [-1.0 - math.log(2), 0.0, -1.0 + math.log(2) - math.log(4)]
    # No spread, so only KL and entropy act. d = log 2, log 4 (logprob is -1 + log 2), 0.
    log2 = math.log(2)
    k3 = [0.5 + log2 - 1, 0.25 + 2 * log2 - 1, 0.0]
    config = GrpoConfig(kl=KlConfig(coef=0.3), entropy_coef=0.1, loss_aggregation="token_mean")
    output, gradient = run(config, groups, first_update=True)
    entropy_bonus = 0.1 * 0.5
    assert output.loss.item() == pytest.approx(0.3 * sum(k3) / 3 - entropy_bonus)
    # The slope of k3 is 1 - exp(-d).
    assert gradient[0].tolist() == pytest.approx([0.1 * 0.5, 0, 0.1 * 0.75])
    assert output.sums["actor/kl_reference"] == (pytest.approx(sum(k3)), 3.0)
    assert output.sums["actor/kl_loss"][0] == pytest.approx(0.3 * sum(k3) / 3)
    # In a later update each term carries its ratio, here 1 and 2, as a weight without gradient.
    output, gradient = run(config, groups)
    assert output.loss.item() == pytest.approx(0.3 * (k3[0] + 2 * k3[1]) / 3 - entropy_bonus)
    assert gradient[0].tolist() == pytest.approx([0.1 * 0.5, 0, 0.1 * 2 * 0.75])


def test_kl_in_the_reward_is_taken_from_the_score_before_the_group_is_compared() -> None:
    groups = [[oracle.response(1.0, [1.0, None, 1.0]), oracle.response(0.0, [1.0])]]
    groups[0][0].reference = [-1.5, 0.0, -1.25]
    groups[0][1].reference = [-0.5]
    # k1 sums to 0.75 and -0.5; with coefficient 0.4 the returns are 0.7 and 0.2.
    config = DrGrpoConfig(kl=KlConfig(coef=0.4, estimator="k1", where="reward"))
    batch, _ = prepared(config, groups)
    assert batch.advantages is not None
    torch.testing.assert_close(batch.advantages, torch.tensor([[0.25, 0, 0.25], [-0.25, 0, 0]]))
    output, _ = run(config, groups)
    assert "actor/kl_loss" not in output.sums
    assert output.sums["actor/kl_reference"][1] == 3.0
    grpo, _ = prepared(GrpoConfig(kl=config.kl), groups)
    assert grpo.advantages is not None
    assert grpo.advantages[0, 0].item() == pytest.approx(0.25 / (math.sqrt(0.125) + 1e-6))


def test_kl_in_the_reward_alone_gives_grpo_no_spread_to_blow_up() -> None:
    groups = [[oracle.response(1.0, [1.0]), oracle.response(1.0, [1.0])]]
    groups[0][0].reference = [-1.01]
    kl = KlConfig(coef=0.1, estimator="k1", where="reward")
    grpo, _ = prepared(GrpoConfig(kl=kl), groups)
    assert grpo.advantages is not None
    assert grpo.advantages.tolist() == [[0.0], [0.0]]
    # Dr. GRPO divides by nothing: the penalty acts at its own small size.
    dr_grpo, _ = prepared(DrGrpoConfig(kl=kl), groups)
    assert dr_grpo.advantages is not None
    torch.testing.assert_close(dr_grpo.advantages, torch.tensor([[-0.0005], [0.0005]]))


@pytest.mark.thorough
@pytest.mark.parametrize("config_class", [GrpoConfig, DrGrpoConfig])
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches(config_class: Any) -> None:
    plain = oracle.grpo_advantages if config_class is GrpoConfig else oracle.dr_grpo_advantages
    totals = check_random_batches(
        lambda draw: config_class(**shared_settings(draw), **clip_settings(draw)), plain, oracle.clipped_loss
    )
    for name in ("clip_fraction_low", "clip_fraction_high", "dual_clip_fraction"):
        assert totals[f"actor/{name}"] > 20, name


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("config_class", [GrpoConfig, DrGrpoConfig])
def test_nothing_depends_on_micro_batches_padding_or_order(config_class: Any, aggregation: str) -> None:
    check_invariance(
        config_class(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01, dual_clip=2.0)
    )


def test_one_update_takes_the_current_logprobs_as_the_old_ones() -> None:
    algorithm = build_algorithm(GrpoConfig())
    assert not algorithm.needs_old_logprobs(mini_batches=1, epochs=1)
    assert algorithm.needs_old_logprobs(mini_batches=2, epochs=1)
    assert algorithm.needs_old_logprobs(mini_batches=1, epochs=2)
    batch, stats = prepared(GrpoConfig(), WORKED)
    exact = batch.with_(old_logprobs=stats.logprobs.detach())
    absent = GroupBatch(**{**vars(batch), "old_logprobs": None})
    gradients = []
    for one in (exact, absent):
        logprobs = stats.logprobs.detach().clone().requires_grad_()
        output = algorithm.objective(one, response_limit=10, first_update=True)(one, TokenStats(logprobs))
        output.loss.backward()
        gradients.append(logprobs.grad)
        assert output.maxima["actor/ratio_max"] == 1.0
        assert output.sums["actor/clip_fraction_high"][0] == 0
    torch.testing.assert_close(gradients[0], gradients[1])


def test_advantages_are_the_same_over_the_whole_batch_and_over_a_mini_batch_of_whole_groups() -> None:
    batch, _ = prepared(GrpoConfig(), WORKED)
    for number in (0, 1):
        alone, _ = prepared(GrpoConfig(), WORKED[number : number + 1])
        part = batch.select_prompts(number, number + 1)
        torch.testing.assert_close(part.advantages, alone.advantages)


def test_reference_entropy_and_old_logprobs_are_asked_for_only_where_they_are_used() -> None:
    plain = build_algorithm(GrpoConfig())
    assert not plain.needs_reference
    bound = build_algorithm(DrGrpoConfig(kl=KlConfig(coef=0.1), entropy_coef=0.1))
    assert bound.needs_reference
    batch, _ = prepared(bound.config, WORKED)
    assert bound.objective(batch, response_limit=4, first_update=True).needs_entropy
    assert not plain.objective(batch, response_limit=4, first_update=True).needs_entropy
