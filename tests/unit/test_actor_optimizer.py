from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from mmrl.config.run import OptimConfig
from mmrl.engines.optimizer import (
    build_optimizer,
    clip_gradients,
    gradient_norm,
    learning_rate,
    load_optimizer_state,
    optimizer_state,
)
from mmrl.errors import ConfigError, ModelError


def rates(total_steps: int, **options: object) -> list[float]:
    config = OptimConfig.model_validate({"lr": 1.0, **options})
    return [learning_rate(step, config, total_steps=total_steps) for step in range(1, total_steps + 1)]


def test_constant_schedule_rises_over_the_warm_up_and_stays():
    assert rates(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_without_warm_up_the_first_step_has_the_full_rate():
    assert rates(3) == [1.0, 1.0, 1.0]


def test_linear_schedule_falls_to_zero_in_the_last_step():
    assert rates(5, schedule="linear") == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_linear_schedule_falls_from_the_end_of_warm_up_to_its_minimum():
    assert rates(6, schedule="linear", warmup_steps=2, min_lr_ratio=0.2) == pytest.approx(
        [0.5, 1.0, 0.8, 0.6, 0.4, 0.2]
    )


def test_cosine_schedule_has_the_values_of_a_quarter_turn():
    quarter = (1 + math.cos(math.pi / 4)) / 2
    expected = [1.0, quarter, 0.5, 1 - quarter, 0.0]
    assert rates(5, schedule="cosine") == pytest.approx(expected)


def test_cosine_schedule_ends_at_its_minimum_and_stays_there():
    config = OptimConfig(lr=2.0, schedule="cosine", min_lr_ratio=0.1)
    assert learning_rate(3, config, total_steps=5) == pytest.approx(2.0 * 0.55)
    assert learning_rate(5, config, total_steps=5) == pytest.approx(0.2)
    assert learning_rate(9, config, total_steps=5) == pytest.approx(0.2)


def test_a_run_of_one_step_and_one_shorter_than_its_warm_up_have_a_rate():
    assert rates(1, schedule="linear") == [1.0]
    assert rates(2, schedule="cosine", warmup_steps=4) == [0.25, 0.5]


class Mixed(nn.Module):
    """A matrix, a bias and a frozen matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor([[1.0, -2.0]]))
        self.bias = nn.Parameter(torch.tensor([3.0]))
        self.frozen = nn.Parameter(torch.ones(2, 2), requires_grad=False)


def test_an_adamw_step_equals_the_hand_computation_with_decay_for_matrices_only():
    model = Mixed()
    config = OptimConfig(lr=0.1, weight_decay=0.5, betas=(0.9, 0.99), eps=1e-8)
    optimizer = build_optimizer(model, config)
    for gradients in (([[0.2, -0.4]], [1.0]), ([[0.6, 0.4]], [3.0])):
        model.matrix.grad, model.bias.grad = torch.tensor(gradients[0]), torch.tensor(gradients[1])
        optimizer.step()

    def two_steps(weight: float, first: float, second: float, decay: float) -> float:
        # step 1: m / (1 - 0.9) = g and v / (1 - 0.99) = g², so the update is the sign
        weight = weight * (1 - 0.1 * decay) - 0.1 * math.copysign(1, first)
        m, v = 0.9 * 0.1 * first + 0.1 * second, 0.99 * 0.01 * first**2 + 0.01 * second**2
        return weight * (1 - 0.1 * decay) - 0.1 * (m / (1 - 0.9**2)) / math.sqrt(v / (1 - 0.99**2))

    assert model.matrix[0, 0].item() == pytest.approx(two_steps(1.0, 0.2, 0.6, decay=0.5), rel=1e-6)
    assert model.matrix[0, 1].item() == pytest.approx(two_steps(-2.0, -0.4, 0.4, decay=0.5), rel=1e-6)
    assert model.bias.item() == pytest.approx(two_steps(3.0, 1.0, 3.0, decay=0.0), rel=1e-6)
    assert torch.equal(model.frozen, torch.ones(2, 2))


def test_only_trainable_parameters_are_in_the_optimiser():
    optimizer = build_optimizer(Mixed(), OptimConfig(weight_decay=0.5))
    names = {name: group["weight_decay"] for group in optimizer.param_groups for name in group["param_names"]}
    assert names == {"matrix": 0.5, "bias": 0.0}


def test_a_model_without_trainable_parameters_is_refused_with_the_key_to_change():
    model = Mixed().requires_grad_(False)
    with pytest.raises(ConfigError, match=r"model\.freeze.*none of the model's 3 .* is trainable"):
        build_optimizer(model, OptimConfig())


def test_gradients_above_the_bound_are_scaled_to_it_and_smaller_ones_left_alone():
    model = Mixed()
    model.matrix.grad, model.bias.grad = torch.tensor([[3.0, 0.0]]), torch.tensor([4.0])
    norm = gradient_norm(model.parameters())
    assert norm.item() == 5.0
    clip_gradients(model.parameters(), norm, largest=10.0)
    assert model.bias.grad.item() == 4.0
    clip_gradients(model.parameters(), norm, largest=1.0)
    assert model.matrix.grad[0, 0].item() == pytest.approx(0.6, rel=1e-5)
    assert model.bias.grad.item() == pytest.approx(0.8, rel=1e-5)


def test_the_norm_without_any_gradient_is_zero():
    assert gradient_norm(Mixed().parameters()).item() == 0.0


def step_with(optimizer: torch.optim.Optimizer, model: Mixed, gradient: float) -> None:
    model.matrix.grad, model.bias.grad = torch.full((1, 2), gradient), torch.full((1,), gradient)
    optimizer.step()


def test_loaded_state_continues_exactly_and_keeps_the_configs_settings():
    whole, resumed = Mixed(), Mixed()
    optimizer = build_optimizer(whole, OptimConfig(lr=0.1, weight_decay=0.5))
    step_with(optimizer, whole, 1.0)
    saved = copy.deepcopy(optimizer_state(optimizer))
    resumed.load_state_dict(whole.state_dict())
    second = build_optimizer(resumed, OptimConfig(lr=0.1, weight_decay=0.5))
    load_optimizer_state(second, saved)
    step_with(optimizer, whole, -0.3)
    step_with(second, resumed, -0.3)
    assert torch.equal(whole.matrix, resumed.matrix)
    assert torch.equal(whole.bias, resumed.bias)

    other = build_optimizer(resumed, OptimConfig(lr=0.1, weight_decay=0.25))
    load_optimizer_state(other, saved)
    assert [group["weight_decay"] for group in other.param_groups] == [0.25, 0.0]


def test_state_of_a_parameter_that_is_frozen_now_is_refused():
    model = Mixed()
    optimizer = build_optimizer(model, OptimConfig())
    step_with(optimizer, model, 1.0)
    frozen = Mixed()
    frozen.bias.requires_grad_(False)
    with pytest.raises(ModelError, match=r"moments of shape \(1,\) for bias, which is not trained in this run"):
        load_optimizer_state(build_optimizer(frozen, OptimConfig()), optimizer_state(optimizer))
