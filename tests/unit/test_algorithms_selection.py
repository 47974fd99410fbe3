"""Which groups and responses an update learns from, and troubles that people met with them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.selection import Selection
from mmrl.config.advantage import AdvantageSource
from mmrl.config.algorithm import DrGrpoConfig, GrpoConfig, KlConfig, ReinforcePlusPlusConfig
from mmrl.types import RewardPart, RewardResult, ScoredGroup


def groups_with(*scores: list[float]) -> oracle.Groups:
    return [[oracle.response(score, [1.0, None, 1.0]) for score in group] for group in scores]


def select(groups: oracle.Groups, **settings: Any) -> Selection:
    return build_algorithm(GrpoConfig(**settings)).select(oracle.scored_groups(groups))


def with_rewards(group: ScoredGroup, *rewards: RewardResult) -> ScoredGroup:
    return replace(group, rewards=rewards)


def scores(selection: Selection) -> list[list[float | None]]:
    return [[reward.total for reward in group.rewards] for group in selection.groups]


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_a_response_without_a_score_leaves_its_group_and_is_counted(missing: float | None) -> None:
    group = oracle.scored_groups(groups_with([1.0, 0.0, 1.0]))[0]
    failed = RewardResult(missing, (RewardPart("task", missing, 1.0, error="raised"),))
    group = with_rewards(group, group.rewards[0], failed, group.rewards[2])
    selection = build_algorithm(GrpoConfig()).select([group])
    assert scores(selection) == [[1.0, 1.0]]
    assert [rollout.index for rollout in selection.groups[0].group.rollouts] == [0, 2]
    assert selection.stats.num_missing_rewards == 1
    # Spread is judged on what is left.
    assert selection.stats.num_without_spread == 1


def test_a_group_with_fewer_than_two_scores_is_dropped_and_counted() -> None:
    groups = oracle.scored_groups(groups_with([1.0, 0.0], [1.0, 0.0]))
    failed = RewardResult(None, ())
    groups[0] = with_rewards(groups[0], groups[0].rewards[0], failed)
    selection = build_algorithm(GrpoConfig()).select(groups)
    assert scores(selection) == [[1.0, 0.0]]
    assert selection.stats.metrics() == {
        "groups/share_without_spread": 0.0,
        "groups/share_all_fail_with_spread": 0.0,
        "groups/dropped": 1.0,
        "groups/kept": 1.0,
        "groups/missing_rewards": 1.0,
        "groups/masked_truncated": 0.0,
        "groups/empty_responses": 0.0,
    }


def test_groups_without_spread_are_kept_unless_dropping_is_asked_for() -> None:
    groups = groups_with([1.0, 1.0], [0.0, 1.0], [0.1, 0.1], [0.0, 0.5])
    kept = select(groups)
    assert len(kept.groups) == 4
    assert kept.stats.metrics()["groups/share_without_spread"] == 0.5
    dropped = select(groups, drop_groups_without_spread=True)
    assert scores(dropped) == [[0.0, 1.0], [0.0, 0.5]]
    assert dropped.stats.metrics()["groups/share_without_spread"] == 0.5
    assert dropped.stats.num_dropped_groups == 2


def test_nothing_to_select_from_gives_nothing() -> None:
    selection = select([])
    assert selection.groups == []
    assert set(selection.stats.metrics().values()) == {0.0}


def test_a_masked_truncated_response_counts_in_its_group_but_not_in_the_loss() -> None:
    groups = [
        [
            oracle.response(1.0, [1.0, 1.0]),
            oracle.response(0.0, [1.0, 1.0, 1.0], truncated=True),
            oracle.response(0.5, [1.0]),
        ]
    ]
    config = DrGrpoConfig(mask_truncated=True, loss_aggregation="token_mean")
    algorithm = build_algorithm(config)
    kept, stats = algorithm.select(oracle.scored_groups(groups))
    assert stats.num_masked_truncated == 1
    batch = oracle.group_batch(kept, groups)
    assert batch.num_sampled_tokens == 3
    assert batch.num_sequences == 2
    advantages = algorithm.advantages(kept, batch)
    # The mean 0.5 includes the truncated response's score.
    assert advantages.tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    stats_of_tokens = oracle.token_stats(groups, 3)
    algorithm.objective(batch, response_limit=3, first_update=True)(
        batch.with_(advantages=advantages), stats_of_tokens
    ).loss.backward()
    assert stats_of_tokens.logprobs.grad is not None
    expected = [[-0.5 / 3, -0.5 / 3, 0.0], [0.0] * 3, [0.0] * 3]
    torch.testing.assert_close(stats_of_tokens.logprobs.grad, torch.tensor(expected, dtype=torch.float64))


def test_truncated_responses_are_learned_from_unless_masking_is_asked_for() -> None:
    groups = [[oracle.response(1.0, [1.0]), oracle.response(0.0, [1.0], truncated=True)]]
    selection = select(groups)
    assert [rollout.response_mask for rollout in selection.groups[0].group.rollouts] == [(1,), (1,)]
    assert selection.stats.num_masked_truncated == 0


def test_t13_a_step_whose_responses_are_all_truncated_and_masked_has_no_group_left() -> None:
    groups = [[oracle.response(score, [1.0, 1.0], truncated=True) for score in (0.0, 1.0)] for _ in range(3)]
    selection = select(groups, mask_truncated=True)
    assert selection.groups == []
    assert selection.stats.num_masked_truncated == 6
    assert selection.stats.num_dropped_groups == 3


def test_t09_statistics_are_of_the_group_and_not_of_the_batch() -> None:
    groups = groups_with([1.0, 0.0], [0.9, 0.1])
    scored = oracle.scored_groups(groups)
    advantages = build_algorithm(DrGrpoConfig()).advantages(scored, oracle.group_batch(scored, groups))
    torch.testing.assert_close(advantages[:, 0], torch.tensor([0.5, -0.5, 0.4, -0.4]))
    assert not advantages[:, 1].any()


@pytest.mark.parametrize("kl", [KlConfig(), KlConfig(coef=0.1), KlConfig(coef=0.1, estimator="k1", where="reward")])
def test_t08_a_group_that_is_all_right_has_advantages_exactly_zero_and_is_counted(kl: KlConfig) -> None:
    groups = groups_with([1.0, 1.0, 1.0, 1.0])
    for row, shift in zip(groups[0], (0.0, 0.1, 0.2, 0.3), strict=True):
        row.reference = [value - shift * sampled for value, sampled in zip(row.old, row.mask, strict=True)]
    config = GrpoConfig(kl=kl)
    algorithm = build_algorithm(config)
    kept, stats = algorithm.select(oracle.scored_groups(groups))
    assert stats.metrics()["groups/share_without_spread"] == 1.0
    batch = oracle.group_batch(kept, groups)
    advantages = algorithm.advantages(kept, batch)
    assert advantages.tolist() == [[0.0] * 3] * 4
    stats_of_tokens = oracle.token_stats(groups, 3)
    output = algorithm.objective(batch, response_limit=3, first_update=True)(
        batch.with_(advantages=advantages), stats_of_tokens
    )
    output.loss.backward()
    assert stats_of_tokens.logprobs.grad is not None
    # KL in the loss still pulls such a group; otherwise nothing does.
    assert bool(stats_of_tokens.logprobs.grad.any()) == (kl.coef > 0 and kl.where == "loss")
    assert output.sums["actor/policy_loss"][0] == 0.0


def test_t11_mask_sums_are_the_sampled_lengths_whatever_the_padding_holds() -> None:
    groups = [[oracle.response(1.0, [1.0] * 3), oracle.response(0.0, [1.0] * 9)]]
    batch = oracle.group_batch(oracle.scored_groups(groups), groups)
    assert batch.response_mask.sum(-1).tolist() == [3.0, 9.0]
    filled = batch.with_(response_ids=batch.response_ids.masked_fill(batch.response_mask == 0, 7))
    config = GrpoConfig()
    algorithm = build_algorithm(config)
    advantages = algorithm.advantages(oracle.scored_groups(groups), filled)
    assert advantages[0].count_nonzero() == 3
    assert advantages[1].count_nonzero() == 9
    assert algorithm.objective(filled, response_limit=9, first_update=True)(
        filled.with_(advantages=advantages), oracle.token_stats(groups, 9)
    ).loss.item() == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("config_class", [GrpoConfig, DrGrpoConfig])
def test_t12_an_empty_response_gives_a_finite_loss_and_is_counted(config_class: Any) -> None:
    groups = [[oracle.response(0.0, []), oracle.response(1.0, [1.0, 1.0])]]
    for aggregation in ("token_mean", "sequence_mean_token_sum", "sequence_mean_token_mean", "constant"):
        algorithm = build_algorithm(config_class(loss_aggregation=aggregation))
        kept, stats = algorithm.select(oracle.scored_groups(groups))
        assert stats.num_empty == 1
        batch = oracle.group_batch(kept, groups)
        assert (batch.num_sampled_tokens, batch.num_sequences) == (2, 1)
        batch = batch.with_(advantages=algorithm.advantages(kept, batch))
        objective = algorithm.objective(batch, response_limit=4, first_update=True)
        output = objective(batch, oracle.token_stats(groups, 2))
        assert output.loss.item() < 0
        # The empty response alone in a micro-batch: no column at all.
        empty = batch.select_rows(torch.tensor([0]))
        assert empty.response_mask.shape == (1, 0)
        alone = objective(empty, oracle.token_stats([groups[0][:1]], 0))
        assert alone.loss.item() == 0.0
        assert alone.maxima == {}


def test_an_all_wrong_group_that_length_shaping_spreads_is_reported() -> None:
    shaped = [-0.1, -0.2, -0.3, -0.1]
    groups = oracle.scored_groups(groups_with(shaped, [0.9, -0.1, -0.2, 0.8], [0.0] * 4))
    # The same first group with its parts told apart: correctness 0, then a penalty on length.
    parts = [(RewardPart("math", 0.0, 1.0), RewardPart("length", value, 1.0)) for value in shaped]
    apart = with_rewards(groups[0], *(RewardResult(value, part) for value, part in zip(shaped, parts, strict=True)))
    for first in (groups[0], apart):
        stats = build_algorithm(GrpoConfig()).select([first, *groups[1:]]).stats
        assert stats.num_all_fail_with_spread == 1
        assert stats.metrics()["groups/share_all_fail_with_spread"] == pytest.approx(1 / 3)


def test_failure_is_read_from_the_heaviest_part() -> None:
    group = oracle.scored_groups(groups_with([0.3, 0.5]))[0]

    def result(correct: float, bonus: float) -> RewardResult:
        return RewardResult(
            correct + 0.5 * bonus, (RewardPart("length", bonus, 0.5), RewardPart("exact", correct, 1.0))
        )

    all_wrong = with_rewards(group, result(0.0, 0.6), result(0.0, 1.0))
    one_right = with_rewards(group, result(0.0, 0.6), result(1.0, 1.0))
    stats = build_algorithm(GrpoConfig()).select([all_wrong, one_right]).stats
    assert stats.num_all_fail_with_spread == 1


def test_a_borrowed_group_estimator_drops_groups_with_one_score() -> None:
    config = ReinforcePlusPlusConfig(group_size=4, advantage=AdvantageSource(type="grpo"))
    groups = [[oracle.response(float(index), [1.0]) for index in range(4)], [oracle.response(1.0, [1.0])]]
    kept, stats = build_algorithm(config).select(oracle.scored_groups(groups))
    assert [len(group.rewards) for group in kept] == [4]
    assert stats.num_dropped_groups == 1
