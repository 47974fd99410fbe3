"""The gradient of each algorithm's objective on a tiny real model, whole or as one rank of several sees it.

As a program it is one rank: `python gradient_case.py MODEL IMAGES OUT`, with RANK, WORLD_SIZE and the address of the
group in the environment. It adds up the gradients of its groups over the ranks, and rank 0 writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from pydantic import TypeAdapter
from torch import Tensor

from mmrl.algorithms import ALGORITHMS, build_algorithm
from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config.algorithm import AlgorithmConfig
from mmrl.config.run import ImageConfig, ModelConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines.gradients import GradientAccumulator
from mmrl.models.policy import ForwardPath, PolicyModel, load_policy
from mmrl.types import (
    ImagePart,
    Message,
    RewardPart,
    RewardResult,
    Rollout,
    RolloutGroup,
    Sample,
    ScoredGroup,
    TextPart,
)

TEMPERATURE = 0.8
LIMIT = 9
RESPONSE_LENGTHS = ((5, 0, LIMIT, 3), (3, 7, 1, 2), (LIMIT, 2, 4, 4))
SETTINGS: dict[str, dict[str, Any]] = {
    "cispo": {"cap": 1.1},
    "gdpo": {"kl": {"coef": 0.05, "estimator": "k2"}},
    "gspo": {"clip_low": 0.05, "clip_high": 0.05, "correction": {"weight": "icepop", "low": 0.7, "high": 1.3}},
    "online_dpo": {"beta": 0.5},
    "ppo": {"kl": {"coef": 0.05, "where": "loss", "estimator": "k3"}, "entropy_top_share": 0.6},
    "rloo": {"kl": {"coef": 0.05, "estimator": "k1", "where": "reward"}},
    "sppo": {"eta": 2.0, "kl": {"coef": 0.05, "estimator": "k2"}, "entropy_coef": 0.01},
    "vapo": {"entropy_coef": 0.02},
}
"""Settings that bring each part in somewhere; the others have a KL and an entropy term and a sequence mask."""
COMMON = {"kl": {"coef": 0.05, "estimator": "k3"}, "entropy_coef": 0.01, "correction": {"weight": "tis", "cap": 1.2}}


@dataclass(frozen=True)
class GradientCase:
    """A model and a group of four responses to each of three prompts: with no, one and two images."""

    policy: PolicyModel
    groups: list[ScoredGroup]
    batch: GroupBatch

    @classmethod
    def of(cls, model: Path, images: Path) -> GradientCase:
        store = ImageStore(images)
        config = ModelConfig.model_validate({"path": str(model), "dtype": "float64", "device": "cpu"})
        policy = load_policy(config, ImageConfig(), store=store)
        draw = torch.Generator().manual_seed(3)
        allowed = torch.tensor([i for i in range(256) if i not in set(policy.prompts.banned_token_ids)])
        groups = [_group(sample, number, allowed, draw) for number, sample in enumerate(_samples(store))]
        return cls(policy, groups, _recorded(policy, groups, draw))

    def update(self, name: str) -> tuple[Any, GroupBatch]:
        """The algorithm and the batch as its update takes it."""
        config = TypeAdapter(AlgorithmConfig).validate_python(
            {"type": name, "group_size": 4, **SETTINGS.get(name, COMMON)}
        )
        algorithm = build_algorithm(config, response_limit=LIMIT)
        batch, _ = algorithm.prepare_update(algorithm.complete(self.groups, self.batch))
        return algorithm, batch

    def gradient(
        self, name: str, *, budget: int = 10_000, path: ForwardPath = "prefix", prompts: tuple[int, int] | None = None
    ) -> tuple[dict[str, Tensor], dict[str, float]]:
        """The gradient of each parameter, and the metrics, of the update over all prompts, or of the part of it that
        the given prompts make: the counts are the whole update's either way."""
        algorithm, batch = self.update(name)
        objective = algorithm.objective(batch, response_limit=LIMIT, first_update=False)
        part = batch if prompts is None else batch.select_prompts(*prompts)
        self.policy.zero_grad()
        done = GradientAccumulator(
            self.policy,
            TrainConfig.model_validate({"micro_batch_tokens": budget, "path": path}),
            lambda rows, goal: self.policy(rows, temperature=TEMPERATURE, path=path, with_entropy=goal.needs_entropy),
        ).accumulate(part, objective)
        gradients = {
            parameter: weight.grad.clone()
            for parameter, weight in self.policy.named_parameters()
            if weight.grad is not None
        }
        return gradients, done.metrics


def relative_difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    difference = sum(float((found[name] - gradient).square().sum()) for name, gradient in expected.items())
    return float((difference / sum(float(gradient.square().sum()) for gradient in expected.values())) ** 0.5)


def _samples(store: ImageStore) -> list[Sample]:
    draw = torch.Generator().manual_seed(0)

    def image(width: int, height: int) -> ImagePart:
        pixels = torch.randint(0, 256, (height, width, 3), generator=draw, dtype=torch.uint8)
        return ImagePart(store.add(Image.fromarray(pixels.numpy())))

    contents = [
        (TextPart("What is two and two?"),),
        (image(56, 56), TextPart("Which digit is this?")),
        (image(56, 84), image(112, 56), TextPart("What is the sum of the two?")),
    ]
    return [Sample(id=str(index), messages=(Message("user", content),)) for index, content in enumerate(contents)]


def _group(sample: Sample, number: int, allowed: Tensor, draw: torch.Generator) -> ScoredGroup:
    """Responses with a tool's answer in the longer ones, with two rewards drawn at random."""
    rollouts, rewards = [], []
    for index, length in enumerate(RESPONSE_LENGTHS[number]):
        ids = allowed[torch.randint(0, len(allowed), (length,), generator=draw)].tolist()
        mask = tuple(0 if length >= 7 and column in (2, 3) else 1 for column in range(length))
        finish = "length" if length == LIMIT else "stop"
        rollouts.append(Rollout(sample.id, index, tuple(ids), mask, (0.0,) * length, finish, "", 0, 0))
        right, form = float(torch.rand(1, generator=draw) > 0.5), float(torch.rand(1, generator=draw))
        parts = (RewardPart("right", right, 1.0), RewardPart("form", form, 0.3))
        rewards.append(RewardResult(right + 0.3 * form, parts))
    greedy = RewardResult(0.4, (RewardPart("right", 0.4, 1.0),))
    return ScoredGroup(RolloutGroup(sample, tuple(rollouts)), tuple(rewards), greedy_reward=greedy)


def _recorded(policy: PolicyModel, groups: list[ScoredGroup], draw: torch.Generator) -> GroupBatch:
    """The batch with log-probabilities near the policy's, entropies and a critic's values."""
    prompts = [policy.prompts.prepare(group.group.sample) for group in groups]
    batch = build_group_batch(prompts, [group.group.rollouts for group in groups])
    with torch.no_grad():
        stats = policy(batch, temperature=TEMPERATURE, with_entropy=True)
    mask = batch.response_mask

    def near(scale: float) -> Tensor:
        return stats.logprobs + scale * torch.randn(mask.shape, generator=draw) * mask

    return batch.with_(
        old_logprobs=near(0.2),
        reference_logprobs=near(0.3),
        sampler_logprobs=near(0.2),
        old_entropy=stats.entropy,
        values=torch.rand(mask.shape, generator=draw) * mask,
    )


def main() -> None:
    model, images, out = map(Path, sys.argv[1:])
    torch.distributed.init_process_group("gloo")
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    case = GradientCase.of(model, images)
    edges = torch.linspace(0, len(case.groups), world_size + 1).round().long().tolist()
    found = {}
    for name in sorted(ALGORITHMS):
        gradients, _ = case.gradient(name, prompts=(edges[rank], edges[rank + 1]))
        zeros = {parameter: torch.zeros_like(weight) for parameter, weight in case.policy.named_parameters()}
        flat = torch.cat([tensor.flatten() for tensor in {**zeros, **gradients}.values()])
        torch.distributed.all_reduce(flat)
        found[name] = flat
    if rank == 0:
        torch.save(found, out)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
