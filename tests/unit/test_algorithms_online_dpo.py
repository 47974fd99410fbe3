"""Online DPO: which responses are the pair, and the loss of the pairs."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch
from pydantic import ValidationError

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.preferences.pairs import pair_rows
from mmrl.batch import TokenStats
from mmrl.config import RunConfig
from mmrl.config.algorithm import OnlineDpoConfig
from mmrl.engines.micro_batches import plan_micro_batches
from mmrl.types import ScoredGroup

# The second group holds no pair. References are the old policy, so a log ratio is that of the ratios' product.
GROUPS: oracle.Groups = [
    [oracle.response(score, ratios) for score, ratios in ((0.5, [1.0]), (1.0, [1.5, None, 2.0]), (0.0, [0.5, 0.8]))],
    [oracle.response(1.0, [1.0]), oracle.response(1.0, [2.0])],
    [oracle.response(0.0, [1.0, 1.0]), oracle.response(2.0, [1.25])],
]


def updated(config: OnlineDpoConfig, groups: oracle.Groups = GROUPS) -> tuple[Any, Any, Any]:
    """The algorithm, and the batch as its update takes it, with what the actor would give."""
    algorithm = build_algorithm(config)
    scored = oracle.scored_groups(groups)
    batch, metrics = algorithm.prepare_update(algorithm.complete(scored, oracle.group_batch(scored, groups)))
    assert metrics["groups/pairs"] == len(pair_rows(batch)[0])
    return algorithm, batch, oracle.token_stats(groups, batch.response_ids.shape[1])


def test_the_best_and_the_worst_of_a_group_are_its_pair() -> None:
    _, batch, _ = updated(OnlineDpoConfig())
    assert batch.preferred.tolist() == [-1, 1, 0, -1, -1, 0, 1]
    assert batch.advantages.sum(-1).tolist() == [0, 2, -2, 0, 0, -2, 1], "one at each sampled token"
    parts = [rows.tolist() for rows in plan_micro_batches(batch, 1)]
    assert sorted(parts) == [[0, 1, 2], [3, 4], [5, 6]], "a group stays whole, however small the budget"


def test_only_pairs_are_forwarded_and_groups_without_one_are_dropped() -> None:
    selection = build_algorithm(OnlineDpoConfig(group_size=3)).select(oracle.scored_groups(GROUPS))
    assert [[reward.total for reward in group.rewards] for group in selection.groups] == [[1.0, 0.0], [0.0, 2.0]]
    assert selection.stats.num_dropped_groups == 1


@pytest.mark.parametrize("loss", ["dpo", "ipo"])
def test_the_loss_is_that_of_the_pairs(loss: Any) -> None:
    algorithm, batch, stats = updated(OnlineDpoConfig(beta=0.5, loss=loss))
    output = algorithm.objective(batch, response_limit=10, first_update=True)(batch, stats)
    gaps = [math.log(3.0) - math.log(0.4), math.log(1.25) - 0.0]
    if loss == "dpo":
        expected = sum(math.log1p(math.exp(-0.5 * gap)) for gap in gaps) / 2
    else:
        expected = sum((gap - 1.0) ** 2 for gap in gaps) / 2
    assert output.loss.item() == pytest.approx(expected, rel=1e-6)
    output.loss.backward()
    assert not stats.logprobs.grad[[0, 3, 4]].any(), "responses in no pair"
    assert stats.logprobs.grad[1, 1] == 0, "the tool's turn"
    assert output.sums["rewards/accuracies"] == (2.0, 2.0)


def plain_update(pairs: oracle.Groups, config: OnlineDpoConfig) -> tuple[float, list[list[float]]]:
    """Loss and gradient over pairs of a better and a worse response, as plain Python; a list of slopes for each."""
    loss, gradient = 0.0, []
    for pair in pairs:
        better, worse = (sum(now - then for now, then in zip(row.logprobs, row.reference, strict=True)) for row in pair)
        gap = better - worse
        if config.loss == "dpo":
            loss += math.log1p(math.exp(-config.beta * gap)) / len(pairs)
            slope = -config.beta / (1 + math.exp(config.beta * gap)) / len(pairs)
        else:
            loss += (gap - 1 / (2 * config.beta)) ** 2 / len(pairs)
            slope = 2 * (gap - 1 / (2 * config.beta)) / len(pairs)
        gradient += [[sign * slope * bit for bit in row.mask] for row, sign in zip(pair, (1, -1), strict=True)]
    return loss, gradient


@pytest.mark.thorough
def test_loss_and_gradient_equal_the_plain_float64_version_on_random_batches() -> None:
    """Of what is selected, in any order and cut into micro-batches of whole pairs."""
    num_pairs = 0
    for seed in range(200):
        groups = oracle.random_groups(seed)
        config = OnlineDpoConfig(beta=(0.1, 0.5)[seed % 2], loss=("dpo", "ipo")[seed // 2 % 2])
        algorithm = build_algorithm(config)
        kept = algorithm.select(oracle.scored_groups(groups)).groups
        chosen = [[groups[int(one.group.sample.id)][each.index] for each in one.group.rollouts] for one in kept]
        assert all({row.score for row in pair} == _ends(groups, one) for pair, one in zip(chosen, kept, strict=True))
        pairs = [sorted(pair, key=lambda row: -row.score) for pair in chosen if all(row.num_sampled for row in pair)]
        if not pairs:
            continue
        num_pairs += len(pairs)
        batch, _ = algorithm.prepare_update(algorithm.complete(kept, oracle.group_batch(kept, chosen)))
        objective = algorithm.objective(batch, response_limit=10, first_update=False)
        stats = oracle.token_stats(chosen, batch.response_ids.shape[1])
        loss, slopes = plain_update(pairs, config)
        total = torch.zeros((), dtype=torch.float64)
        for prompt in torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed)):
            rows = torch.nonzero(batch.prompt_of_row == prompt).flatten()
            part = batch.select_rows(rows)
            width = part.response_ids.shape[1]
            total = total + objective(part, TokenStats(stats.logprobs[rows, :width], stats.entropy)).loss
        total.backward()  # type: ignore[no-untyped-call]
        assert total.item() == pytest.approx(loss, rel=1e-6)
        slope_of = {id(row): slope for row, slope in zip([row for pair in pairs for row in pair], slopes, strict=True)}
        rows_of_batch = [row for pair in chosen for row in pair]
        expected = [slope_of.get(id(row), [0.0] * len(row.mask)) for row in rows_of_batch]
        torch.testing.assert_close(stats.logprobs.grad, oracle.padded(expected, stats.logprobs.shape[1]))
    assert num_pairs > 200


def _ends(groups: oracle.Groups, one: ScoredGroup) -> set[float]:
    scores = [row.score for row in groups[int(one.group.sample.id)]]
    return {max(scores), min(scores)}


def test_a_stage_that_ranks_otherwise_decides_the_pairs() -> None:
    algorithm = build_algorithm(OnlineDpoConfig())
    scored = oracle.scored_groups(GROUPS)
    batch = algorithm.complete(scored, oracle.group_batch(scored, GROUPS))
    reversed_ranks, _ = algorithm.prepare_update(batch.with_(advantages=-batch.advantages))
    assert reversed_ranks.preferred.tolist() == [-1, 0, 1, -1, -1, 1, 0]
    equal, metrics = algorithm.prepare_update(batch.with_(advantages=torch.ones_like(batch.advantages)))
    assert metrics["groups/pairs"] == 0.0
    stats = oracle.token_stats(GROUPS, batch.response_ids.shape[1])
    output = algorithm.objective(equal, response_limit=10, first_update=True)(equal, stats)
    assert output.loss.item() == 0.0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"kl": {"coef": 0.1}}, "kl does not go with algorithm 'online_dpo'"),
        ({"policy_loss": {"type": "clip"}}, "policy_loss does not go"),
        ({"advantage": "grpo"}, "advantage does not go"),
        ({"drop_groups_without_spread": False}, "needs a better and a worse response"),
        ({"group_size": 1}, "needs group_size >= 2"),
    ],
)
def test_parts_of_a_policy_gradient_are_refused(settings: dict[str, Any], problem: str) -> None:
    run = {"name": "a", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
    with pytest.raises(ValidationError, match=problem):
        RunConfig.model_validate({**run, "algorithm": {"type": "online_dpo", **settings}})


def test_no_other_algorithm_takes_its_advantages() -> None:
    run = {"name": "a", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
    with pytest.raises(ValidationError, match="learns from pairs and has none to give"):
        RunConfig.model_validate({**run, "algorithm": {"type": "grpo", "advantage": "online_dpo"}})
