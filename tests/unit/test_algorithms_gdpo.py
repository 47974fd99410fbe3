"""GDPO: numbers worked by hand, a plain float64 version, and invariance to how a batch is cut up."""

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
    prepared,
    run,
    shared_settings,
)

from mmrl.algorithms import build_algorithm
from mmrl.config.algorithm import GdpoConfig, KlConfig


def with_parts(groups: oracle.Groups, seed: int = 0) -> oracle.Groups:
    """Two parts of weights 1 and 0.5 beside one that only watches; the score is their weighted sum."""
    draw = random.Random(seed)

    def one(row: oracle.Response) -> oracle.Response:
        right, form = draw.choice([0.0, 1.0]), draw.choice([0.0, 0.5, 1.0])
        parts = [("right", right, 1.0), ("form", form, 0.5), ("watched", draw.random(), 0.0)]
        return replace(row, score=right + 0.5 * form, parts=parts)

    return [[one(row) for row in group] for group in groups]


def worked() -> oracle.Groups:
    """Two responses that earn the same total in different ways, and a third that earns nothing."""
    shapes = [([1.0, None, 1.0], 1.0, 0.0), ([1.0], 0.0, 1.0), ([1.0, 1.0], 0.0, 0.0)]
    return [
        [
            replace(oracle.response(right + form, ratios), parts=[("right", right, 1.0), ("form", form, 1.0)])
            for ratios, right, form in shapes
        ],
        [replace(oracle.response(0.0, [1.0]), parts=[("right", 0.0, 1.0), ("form", 0.0, 1.0)]) for _ in range(2)],
    ]


def test_each_part_is_normalised_within_its_group_and_the_sum_over_the_batch() -> None:
    batch, _ = prepared(GdpoConfig(), worked())
    assert batch.advantages is not None
    # In each part one of three has it: (1 - 1/3) / s and (0 - 1/3) / s, s^2 = 1/3. Sums 1/(3 s), 1/(3 s), -2/(3 s).
    level = 1 / (3 * (math.sqrt(1 / 3) + 1e-6))
    # Over five responses: level, level, -2 level, 0, 0: mean 0, variance 6 level^2 / 4.
    unit = 1 / math.sqrt(1.5)
    assert batch.advantages[:, 0].tolist() == pytest.approx([unit, unit, -2 * unit, 0, 0], rel=1e-5, abs=1e-6)
    assert level > 0
    assert batch.advantages[0].tolist() == pytest.approx([unit, 0, unit], rel=1e-5)


def test_a_masked_or_empty_response_gives_a_group_without_spread_no_advantage() -> None:
    """Three responses of five count in the loss; the batch's mean is of all five, and so it is zero."""
    for change in ({"truncated": True}, {"mask": [], "logprobs": [], "old": [], "reference": [], "entropy": []}):
        groups = worked()
        groups[0][0] = replace(groups[0][0], **change)
        config = GdpoConfig(mask_truncated=True)
        algorithm = build_algorithm(config)
        kept, _ = algorithm.select(oracle.scored_groups(groups))
        advantages = algorithm.advantages(kept, oracle.group_batch(kept, groups))
        unit = 1 / math.sqrt(1.5)
        assert advantages[0].tolist() == [0.0] * advantages.shape[1]
        assert advantages[1:3, 0].tolist() == pytest.approx([unit, -2 * unit], rel=1e-5)
        assert advantages[3:, 0].tolist() == [0.0, 0.0]


def test_weights_are_of_the_normalised_parts() -> None:
    groups = worked()
    for group in groups:
        for row in group:
            (_, right, _), (_, form, _) = row.parts
            row.parts = [("right", right, 1.0), ("form", 100.0 * form, 0.5)]
    batch, _ = prepared(GdpoConfig(), groups)
    assert batch.advantages is not None
    # The scale of a part has no effect, its weight has: sums 2 - 0.5, -1 + 1, -1.5 (in units of 1 / (3 s)).
    sums = torch.tensor([1.5, 0.0, -1.5, 0.0, 0.0])
    torch.testing.assert_close(batch.advantages[:, 0], sums / (4.5 / 4) ** 0.5, rtol=1e-4, atol=1e-5)


def test_loss_and_gradient_on_worked_numbers() -> None:
    output, gradient = run(GdpoConfig(), worked())
    unit = 1 / math.sqrt(1.5)
    assert output.loss.item() == pytest.approx(0, abs=1e-6)
    expected = [[-unit / 2, 0, -unit / 2], [-unit, 0, 0], [unit, unit, 0], [0, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64) / 5, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    def config(draw: random.Random) -> GdpoConfig:
        settings = shared_settings(draw)
        if settings["kl"].where == "reward":
            settings["kl"] = KlConfig(coef=0.2)
        return GdpoConfig(**settings, **clip_settings(draw))

    totals = check_random_batches(config, plain.gdpo, oracle.clipped_loss, change_groups=with_parts)
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    config = GdpoConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01)
    check_invariance(config, change_groups=with_parts)
