"""Weights of KL and entropy that are steered, worked by hand; their state goes through a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mmrl.algorithms import build_algorithm
from mmrl.batch import GroupBatch, PreparedPrompt, TokenStats
from mmrl.config.algorithm import GrpoConfig


def built(**settings: Any) -> Any:
    return build_algorithm(GrpoConfig.model_validate(settings))


def test_the_kl_weight_rises_above_the_target_and_falls_below_by_at_most_a_fifth() -> None:
    algorithm = built(kl={"coef": 0.1, "target": 0.05, "horizon": 100})
    # 10 % too high: the factor is 1 + 0.1 * 50 / 100.
    assert algorithm.observe({"actor/kl_reference": 0.055}, num_responses=50) == {"actor/kl_coef": 0.1}
    assert algorithm.kl_weight.value == pytest.approx(0.105)
    algorithm.observe({"actor/kl_reference": 9.0}, num_responses=50)
    assert algorithm.kl_weight.value == pytest.approx(0.105 * 1.1)
    algorithm.observe({"actor/kl_reference": 0.0}, num_responses=100)
    assert algorithm.kl_weight.value == pytest.approx(0.105 * 1.1 * 0.8)


def test_the_entropy_weight_goes_by_steps_within_its_bounds() -> None:
    algorithm = built(entropy_target={"entropy": 0.5, "step": 0.04, "max_coef": 0.1})
    values = []
    for entropy in (0.4, 0.4, 0.4, 0.5, 0.6, 0.6, 0.6):
        algorithm.observe({"actor/entropy": entropy}, num_responses=8)
        values.append(round(algorithm.entropy_weight.coef, 6))
    assert values == [0.04, 0.08, 0.1, 0.06, 0.02, 0.0, 0.0]


def test_the_entropy_bonus_is_held_back_while_the_entropy_is_above_its_target() -> None:
    """The indicator of Skywork-OR1: the coefficient goes down by steps, and none of it is paid meanwhile."""
    algorithm = built(entropy_coef=0.1, entropy_target={"entropy": 0.5, "step": 0.01})
    paid = []
    for entropy in (0.4, 0.5, 0.6, 0.6, 0.4):
        paid.append(_entropy_loss(algorithm))
        metrics = algorithm.observe({"actor/entropy": entropy}, num_responses=8)
        assert metrics["actor/entropy_coef"] == pytest.approx(paid[-1] / -2.0)
    assert paid == pytest.approx([-0.2, -0.2, -0.18, 0.0, 0.0])
    assert algorithm.entropy_weight.value == pytest.approx(0.08)


def _entropy_loss(algorithm: Any) -> float:
    """What the bonus adds to the loss of an update of two tokens with an entropy of 2.0 nats."""
    batch = _empty_batch().with_(response_mask=torch.ones(1, 2), advantages=torch.zeros(1, 2))
    objective = algorithm.objective(batch, response_limit=4, first_update=True)
    return float(objective(batch, TokenStats(torch.zeros(1, 2), torch.full((1, 2), 2.0))).loss)


def test_a_steered_entropy_is_measured_while_its_weight_is_zero() -> None:
    algorithm = built(entropy_target={"entropy": 0.5})
    batch = _empty_batch()
    assert algorithm.objective(batch, response_limit=4, first_update=True).needs_entropy
    assert not built().objective(batch, response_limit=4, first_update=True).needs_entropy


def test_fixed_weights_stay_whatever_is_measured() -> None:
    algorithm = built(kl={"coef": 0.1}, entropy_coef=0.02)
    metrics = {"actor/kl_reference": 9.0, "actor/entropy": 0.0}
    assert algorithm.observe(metrics, num_responses=1000) == {}
    assert (algorithm.kl_weight.value, algorithm.entropy_weight.value) == (0.1, 0.02)


def test_a_step_that_measured_nothing_steers_nothing() -> None:
    algorithm = built(kl={"coef": 0.1, "target": 0.05}, entropy_target={"entropy": 0.5})
    assert algorithm.observe({}, num_responses=8) == {"actor/kl_coef": 0.1, "actor/entropy_coef": 0.0}
    assert (algorithm.kl_weight.value, algorithm.entropy_weight.value) == (0.1, 0.0)


def test_a_steered_entropy_weight_is_resumed_within_the_bounds_of_now() -> None:
    target = {"entropy": 0.5, "max_coef": 0.1}
    earlier = build_algorithm(GrpoConfig.model_validate({"entropy_coef": 0.09, "entropy_target": target}))
    lowered = GrpoConfig.model_validate({"entropy_coef": 0.01, "entropy_target": {**target, "max_coef": 0.02}})
    resumed = build_algorithm(lowered)
    resumed.load_state_dict({**earlier.state_dict(), "entropy": 0.4})
    assert resumed.entropy_weight.value == 0.02


def test_the_state_brings_steered_weights_back_and_leaves_fixed_ones_to_the_config() -> None:
    settings: dict[str, Any] = {"kl": {"coef": 0.1, "target": 0.05}, "entropy_target": {"entropy": 0.5}}
    algorithm = built(**settings)
    algorithm.observe({"actor/kl_reference": 1.0, "actor/entropy": 0.1}, num_responses=1000)
    state = algorithm.state_dict()
    held_back = built(**settings)
    held_back.load_state_dict({**state, "entropy": 0.6})
    assert (held_back.entropy_weight.coef, held_back.entropy_weight.value) == (0.005, 0.0)
    resumed = built(**settings)
    resumed.load_state_dict(state)
    assert resumed.kl_weight.value == algorithm.kl_weight.value == pytest.approx(0.102)
    assert resumed.entropy_weight.value == algorithm.entropy_weight.value == 0.005
    changed = built(kl={"coef": 0.3}, entropy_coef=0.01)
    changed.load_state_dict(state)
    assert (changed.kl_weight.value, changed.entropy_weight.value) == (0.3, 0.01)


def test_the_penalty_in_the_reward_goes_by_the_steered_weight_also_in_another_algorithms_advantages() -> None:
    kl = {"coef": 0.1, "estimator": "k1", "where": "reward", "target": 0.05}
    algorithm = built(kl=kl, advantage="rloo")
    algorithm.kl_weight.value = 0.5
    batch = _empty_batch()
    batch = batch.with_(
        response_mask=torch.ones(1, 2), sampler_logprobs=torch.zeros(1, 2), reference_logprobs=-torch.ones(1, 2)
    )
    assert algorithm.advantage_source.kl_penalties(batch).tolist() == [[0.5, 0.5]]


def _empty_batch() -> Any:
    zeros = torch.zeros(1, 2)
    ids = torch.zeros(1, 2, dtype=torch.int64)
    return GroupBatch((PreparedPrompt((1,), ()),), torch.tensor([0]), ids, zeros, torch.tensor([2]))
