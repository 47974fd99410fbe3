"""The gradient of every algorithm does not depend on how the update is divided: micro-batches, padding, path, ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from gradient_case import LIMIT, GradientCase, relative_difference
from torch import Tensor

from mmrl.algorithms import ALGORITHMS, build_algorithm
from mmrl.batch import build_group_batch
from mmrl.config.algorithm import GrpoConfig
from mmrl.models.tiny import build_tiny
from mmrl.types import RewardResult, Rollout, RolloutGroup, ScoredGroup

SMALL, LARGE = 120, 10_000
"""Budgets of a micro-batch, in tokens: a prompt with part of its responses, and all in one."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny("qwen2_5_vl", tmp_path_factory.mktemp("model"), seed=1)


@pytest.fixture(scope="module")
def case(model: Path, tmp_path_factory: pytest.TempPathFactory) -> GradientCase:
    return GradientCase.of(model, tmp_path_factory.mktemp("images"))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_micro_batches_padding_and_path_leave_gradient_and_metrics_as_they_are(case: GradientCase, name: str) -> None:
    whole, expected = case.gradient(name, budget=LARGE)
    assert sum(float(gradient.abs().sum()) for gradient in whole.values()) > 0
    # A small budget puts rows of one length together, so it has other padding than all in one.
    for divided, metrics in (
        case.gradient(name, budget=SMALL),
        case.gradient(name, budget=SMALL, path="plain"),
    ):
        assert relative_difference(divided, whole) < 1e-5
        assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.fixture(scope="module")
def of_two_ranks(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Of each algorithm the gradients of two processes, each with its own groups, added up by a real all-reduce."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(__file__).parent / "gradient_case.py"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program), str(model), str(folder / f"images-{rank}"), str(folder / "sum.pt")],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(2)
    ]
    assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
    return torch.load(folder / "sum.pt", weights_only=True)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_two_ranks_add_up_to_the_gradient_of_one(
    case: GradientCase, of_two_ranks: dict[str, Tensor], name: str
) -> None:
    whole, _ = case.gradient(name)
    zeros = {parameter: torch.zeros_like(weight) for parameter, weight in case.policy.named_parameters()}
    flat = torch.cat([tensor.flatten() for tensor in {**zeros, **whole}.values()])
    assert relative_difference({"all": of_two_ranks[name]}, {"all": flat}) < 1e-5


@pytest.fixture
def padding_with_end_tokens(case: GradientCase) -> Iterator[int]:
    """The end token's id while it is the padding token too."""
    tokenizer = case.policy.prompts.tokenizer
    padding = tokenizer.pad_token
    tokenizer.pad_token = tokenizer.eos_token
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    yield tokenizer.eos_token_id
    tokenizer.pad_token = padding


def test_t10_the_end_token_is_learned_where_it_is_the_padding_token_too(
    case: GradientCase, padding_with_end_tokens: int
) -> None:
    prompts = case.policy.prompts
    rollouts = []
    for index, text in enumerate(["7", "seven and more"]):
        ids = tuple(prompts.encode_response(text))
        assert ids[-1] == padding_with_end_tokens
        mask = (1,) * len(ids)
        rollouts.append(Rollout("0", index, ids, mask, (0.0,) * len(ids), "stop", text, 0, 0))
    rewards = tuple(RewardResult(score, ()) for score in (1.0, 0.0))
    group = ScoredGroup(RolloutGroup(case.groups[0].group.sample, tuple(rollouts)), rewards)
    batch = build_group_batch([prompts.prepare(group.group.sample)], [rollouts])
    assert batch.response_mask.sum(-1).tolist() == [len(rollout.token_ids) for rollout in rollouts]
    algorithm = build_algorithm(GrpoConfig())
    batch = algorithm.complete([group], batch)
    stats = case.policy(batch)
    stats.logprobs.retain_grad()
    algorithm.objective(batch, response_limit=LIMIT, first_update=True)(batch, stats).loss.backward()
    for row, rollout in enumerate(rollouts):
        assert stats.logprobs.grad[row, len(rollout.token_ids) - 1] != 0
        assert not stats.logprobs.grad[row, len(rollout.token_ids) :].any()
