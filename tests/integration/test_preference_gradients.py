"""Gradients of preferences and of reward models do not depend on how an update is divided: micro-batches, padding,
path, ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from gradient_case import relative_difference
from models_builders import turn, user
from pydantic import TypeAdapter
from torch import Tensor, nn

from mmrl.algorithms.preferences import PREFERENCES, build_preference
from mmrl.algorithms.reward_model import BradleyTerryObjective
from mmrl.batch import GroupBatch
from mmrl.cluster.policy.shares import row_shares
from mmrl.config.preference import PreferenceConfig
from mmrl.config.run import TrainConfig
from mmrl.data.normalise import make_sample
from mmrl.data.serialise import messages_to_json
from mmrl.engines.gradients import GradientAccumulator
from mmrl.models.policy import PolicyModel
from mmrl.models.reward_model import RewardModel
from mmrl.trainer.answers import AnswerBatches
from mmrl.types import Message, Sample

SMALL, LARGE = 60, 10_000
"""Budgets of a micro-batch, in tokens: less than most pairs with their prompt, and all in one."""


@dataclass(frozen=True)
class Case:
    policy: PolicyModel
    batch: GroupBatch


def compared(prompt: tuple[Message, ...], chosen: list[Message], rejected: list[Message]) -> Sample:
    return make_sample(
        prompt, None, {"chosen": messages_to_json(chosen), "rejected": messages_to_json(rejected), "gap": 0.5}
    )


@pytest.fixture(scope="module")
def case(tiny_policy: Callable[..., PolicyModel], pictures: Any) -> Case:
    """Pairs on a text, on one image and on two, one of them with a tool's turn between the assistant's."""
    policy = tiny_policy("qwen2_5_vl", dtype="float64")
    small, medium, large = pictures
    samples = [
        compared((user("12 + 7?"),), [turn("assistant", "19")], [turn("assistant", "I think that is about 20.")]),
        compared(
            (user(small, "Which digit is shown?"),),
            [turn("assistant", "Let me look."), turn("tool", "enlarged"), turn("assistant", "It is a 7.")],
            [turn("assistant", "8")],
        ),
        compared((user(medium, large, "Compare them."),), [turn("assistant", "alike")], [turn("assistant", "no")]),
    ]
    batch = AnswerBatches(policy.prompts).pairs(samples, margin="gap")
    assert batch.response_mask.sum() < batch.response_lengths.sum(), "the tool's turn is not learned from"
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        logprobs = policy(batch).logprobs
    noise = 0.3 * torch.randn(logprobs.shape, generator=draw) * batch.response_mask
    return Case(policy, batch.with_(reference_logprobs=logprobs + noise, baselines=torch.full((6,), 0.1)))


def gradient(
    module: nn.Module, forward: Callable[..., Any], objective: Any, batch: GroupBatch, *, budget: int, path: Any
) -> tuple[dict[str, Tensor], dict[str, float]]:
    module.zero_grad()
    train = TrainConfig(micro_batch_tokens=budget, path=path)
    done = GradientAccumulator(module, train, forward).accumulate(batch, objective)
    found = {name: weight.grad.clone() for name, weight in module.named_parameters() if weight.grad is not None}
    return found, done.metrics


def check(module: nn.Module, forward: Callable[[str], Callable[..., Any]], objective: Any, batch: GroupBatch) -> None:
    whole, expected = gradient(module, forward("prefix"), objective, batch, budget=LARGE, path="prefix")
    assert sum(float(each.abs().sum()) for each in whole.values()) > 0
    for path in ("prefix", "plain"):
        found, metrics = gradient(module, forward(path), objective, batch, budget=SMALL, path=path)
        assert relative_difference(found, whole) < 1e-5
        assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-7)
    shares = [batch.select_rows(rows) for rows in row_shares(batch, 2)]
    assert all(len(share.prompts) * 2 == share.num_rows for share in shares), "pairs stay together"
    total = {name: torch.zeros_like(weight) for name, weight in whole.items()}
    for share in shares:
        found, _ = gradient(module, forward("prefix"), objective, share, budget=LARGE, path="prefix")
        for name, each in found.items():
            total[name] += each
    assert relative_difference(total, whole) < 1e-5


@pytest.mark.parametrize("name", sorted(PREFERENCES))
def test_the_gradient_of_a_preference_is_the_same_however_it_is_divided(case: Case, name: str) -> None:
    config = TypeAdapter(PreferenceConfig).validate_python({"type": name})
    objective = build_preference(config).objective(case.batch)
    check(case.policy, lambda path: lambda rows, _: case.policy(rows, path=path), objective, case.batch)


def test_the_gradient_of_a_reward_model_is_the_same_however_it_is_divided(case: Case) -> None:
    model = RewardModel(case.policy)
    nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    model.head.double()
    objective = BradleyTerryObjective(case.batch, centring=0.01)
    check(model, lambda path: lambda rows, _: model(rows, path=path), objective, case.batch)


def test_a_pair_forwards_its_prompt_and_image_once(case: Case, tower_calls: list[int]) -> None:
    with torch.no_grad():
        case.policy(case.batch)
    assert tower_calls == [3], "three images for six answers, in one call of the tower"
