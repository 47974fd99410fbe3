"""ReMax: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

from __future__ import annotations

from dataclasses import replace
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

from mmrl.algorithms import build_algorithm
from mmrl.config.algorithm import KlConfig, RemaxConfig
from mmrl.types import RewardResult


def with_greedy(groups: oracle.Groups, scores: list[float]) -> oracle.Groups:
    return [[replace(group[0], greedy=score), *group[1:]] for group, score in zip(groups, scores, strict=True)]


def with_one_greedy(groups: oracle.Groups) -> oracle.Groups:
    return with_greedy(groups, [plain.GREEDY_SCORE] * len(groups))


def test_advantages_are_against_the_greedy_response() -> None:
    groups = with_greedy(WORKED, [0.25, 3.0])
    batch, _ = prepared(RemaxConfig(), groups)
    expected = torch.tensor([[0.75, 0, 0.75, 0.75], [-0.25, -0.25, 0, 0], [0, 0, 0, 0], [-2, 0, 0, 0]])
    torch.testing.assert_close(batch.advantages, expected)


def test_loss_and_gradient_on_worked_numbers() -> None:
    output, gradient = run(RemaxConfig(), with_greedy(WORKED, [0.25, 3.0]))
    # -0.75 (1.2 + 1 + 0.9), 0.25 (0.8 + 2), 0, 2 * 1; summed over tokens, the mean over 4 responses
    assert output.loss.item() == pytest.approx((-2.325 + 0.7 + 0 + 2) / 4, rel=1e-5)
    expected = torch.tensor([[0, 0, -0.75, -0.675], [0, 0.5, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0]], dtype=torch.float64)
    torch.testing.assert_close(gradient, expected / 4, rtol=1e-6, atol=1e-8)


def test_a_prompt_whose_greedy_response_has_no_score_is_left_out_and_counted() -> None:
    scored = oracle.scored_groups(with_greedy(WORKED, [0.25, 3.0]))
    scored[0] = replace(scored[0], greedy_reward=RewardResult(None, ()))
    kept, stats = build_algorithm(RemaxConfig()).select(scored)
    assert [group.group.sample.id for group in kept] == ["1"]
    assert stats.num_dropped_groups == 1


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    totals = check_random_batches(
        lambda draw: RemaxConfig(**shared_settings(draw), **clip_settings(draw)),
        plain.remax,
        oracle.clipped_loss,
        change_groups=with_one_greedy,
    )
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    config = RemaxConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01)
    check_invariance(config, change_groups=with_one_greedy)
