"""DAPO: its four parts on numbers worked by hand, a plain float64 version, invariance to how a batch is cut up."""

from __future__ import annotations

import random
from functools import partial
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
from mmrl.config.algorithm import DapoConfig, KlConfig
from mmrl.config.run import RunConfig


def test_length_near_the_limit_is_punished_over_the_buffer() -> None:
    # Limit 10, buffer 4: no penalty up to 6 tokens, half of it at 8, all of it at 10.
    lengths = [6, 8, 10, 4]
    groups = [[oracle.response(1.0 if index else 0.0, [1.0] * length) for index, length in enumerate(lengths)]]
    batch, _ = prepared(DapoConfig(overlong_buffer=0.4, overlong_penalty=0.5), groups)
    assert batch.advantages is not None
    returns = torch.tensor([0.0, 1 - 0.25, 1 - 0.5, 1.0])
    expected = (returns - returns.mean()) / (returns.std() + 1e-6)
    torch.testing.assert_close(batch.advantages[:, 0], expected)


@pytest.mark.parametrize("settings", [{"type": "dapo"}, {"type": "grpo"}], ids=["its own", "another's"])
def test_a_masked_response_is_not_shaped_and_one_that_ends_by_itself_is(settings: Any) -> None:
    """Limit 10, buffer 4; the third response was cut at 10 tokens, the second ends inside the buffer, at 8. The score
    of the cut one counts in the group as it is."""
    lengths = [6, 8, 10, 4]
    group = [oracle.response(float(index > 0), [1.0] * length) for index, length in enumerate(lengths)]
    group[2].truncated = True
    shaping = {"overlong_buffer": 0.4, "overlong_penalty": 0.5}
    own = shaping if settings["type"] == "dapo" else {"advantage": {"type": "dapo", "arguments": shaping}}
    run = {"name": "r", "model": {"path": "m"}, "data": {"train": "d"}}
    config = RunConfig.model_validate({**run, "algorithm": {**settings, **own, "mask_truncated": True}}).algorithm
    algorithm = build_algorithm(config, response_limit=10)
    kept, _ = algorithm.select(oracle.scored_groups([group]))
    batch = algorithm.complete(kept, oracle.group_batch(kept, [[*group]]))
    assert batch.advantages is not None
    returns = torch.tensor([0.0, 1 - 0.25, 1.0, 1.0])
    expected = (returns - returns.mean()) / (returns.std() + 1e-6)
    expected[2] = 0  # none of its tokens is learned from
    torch.testing.assert_close(batch.advantages[:, 0], expected)


def test_a_tools_answer_is_no_length() -> None:
    groups = [[oracle.response(1.0, [1.0, *[None] * 8, 1.0]), oracle.response(0.0, [1.0, 1.0])]]
    batch, _ = prepared(DapoConfig(), groups)
    assert batch.advantages is not None
    assert batch.advantages[:, 0].tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], rel=1e-5)


def test_t14_length_alone_gives_a_group_that_is_all_wrong_no_spread() -> None:
    wrong = [oracle.response(0.0, [1.0] * length) for length in (10, 9, 8, 2)]
    config = DapoConfig()
    batch, _ = prepared(config, [wrong])
    assert batch.advantages is not None
    assert not batch.advantages.any()
    kept, stats = build_algorithm(config, response_limit=10).select(oracle.scored_groups([wrong, *WORKED]))
    assert [group.group.sample.id for group in kept] == ["1", "2"]
    assert stats.num_dropped_groups == 1


@pytest.mark.parametrize(("gate", "is_shaped"), [("shaping", False), ("group", False), ("off", True)])
def test_t14_length_orders_no_wrong_answers_that_differ_in_another_reward(gate: Any, is_shaped: bool) -> None:
    """Scores -1, -1, -1, -2 of wrong answers of 10, 8, 9 and 10 tokens, limit 10, buffer 4: without shaping the first
    three are alike."""
    wrong = [oracle.response(score, [1.0] * num) for score, num in ((-1, 10), (-1, 8), (-1, 9), (-2, 10))]
    batch, _ = prepared(DapoConfig(outcome_gate=gate, overlong_buffer=0.4), [wrong])
    assert batch.advantages is not None
    returns = torch.tensor([-1.0, -1, -1, -2]) - (torch.tensor([1.0, 0.5, 0.75, 1]) if is_shaped else 0.0)
    expected = (returns - returns.mean()) / (returns.std() + 1e-6)
    torch.testing.assert_close(batch.advantages[:, 0], expected)


def test_clip_higher_and_the_mean_over_tokens_are_its_defaults() -> None:
    groups = [[oracle.response(1.0, [1.5, None, 1.25]), oracle.response(0.0, [0.7])]]
    output, gradient = run(DapoConfig(), groups)
    level = 0.5**0.5
    # 1.5 is clipped to 1.28 and 1.25 is not; 0.7 is clipped to 0.8.
    assert output.loss.item() == pytest.approx(level * (-1.28 - 1.25 + 0.8) / 3, rel=1e-5)
    expected = torch.tensor([[0, 0, -level * 1.25], [0, 0, 0]], dtype=torch.float64) / 3
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    def config(draw: random.Random) -> DapoConfig:
        return DapoConfig(**shared_settings(draw), **clip_settings(draw), overlong_buffer=draw.choice([0.2, 0.5, 1.0]))

    totals = check_random_batches(config, partial(plain.dapo, response_limit=10), oracle.clipped_loss)
    assert totals["actor/clip_fraction_low"] > 20


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_nothing_depends_on_micro_batches_padding_or_order(aggregation: Any) -> None:
    check_invariance(DapoConfig(loss_aggregation=aggregation, kl=KlConfig(coef=0.1), entropy_coef=0.01))
