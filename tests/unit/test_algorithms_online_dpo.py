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
from mmrl.config import RunConfig
from mmrl.config.algorithm import OnlineDpoConfig
from mmrl.engines.micro_batches import plan_micro_batches

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
