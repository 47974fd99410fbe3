"""Actor and critic, whole and divided among the ranks of this run, on the same recorded rollouts.

    shard_ranks.py SETTINGS.json

with RANK, WORLD_SIZE and the address of the group in the environment. SETTINGS: `models`, folder of each family;
`scratch`, a folder; `cases`, what to compare. Rank 0 writes what differs into `scratch`/report-WORLD_SIZE.json.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, distributed, nn

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.value_loss import ValueObjective
from mmrl.batch import GroupBatch
from mmrl.config.actor import FsdpConfig
from mmrl.config.algorithm import GrpoConfig, KlConfig
from mmrl.config.critic import CriticConfig
from mmrl.config.optim import OptimConfig
from mmrl.config.run import ImageConfig, ModelConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.critic import HfCritic
from mmrl.engines.reference import Reference
from mmrl.engines.shard_loading import load_sharded_policy, load_sharded_value_model
from mmrl.engines.sharding import Ranks, init_ranks
from mmrl.models.lockstep import whole
from mmrl.models.policy import PolicyModel, load_policy, named_weights
from mmrl.models.value_model import ValueModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from models_builders import mixed_batch

TEMPERATURE = 0.8
LIMIT = 9
Named = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """What is compared, and how it is divided.

    prompts: of the four of `mixed_batch`. edges: rank r has prompts edges[r]..edges[r+1]-1 of these.
    single_tokens: responses are cut to one token on rank 0.
    """

    name: str
    family: str = "qwen2_5_vl"
    model: dict[str, Any] | None = None
    fsdp: dict[str, Any] | None = None
    train: dict[str, Any] | None = None
    optim: dict[str, Any] | None = None
    prompts: tuple[int, int] = (0, 4)
    edges: tuple[int, ...] = (0, 2, 4)
    single_tokens: bool = False

    @property
    def train_config(self) -> TrainConfig:
        return TrainConfig.model_validate({"micro_batch_tokens": 90, **(self.train or {})})

    @property
    def optim_config(self) -> OptimConfig:
        return OptimConfig.model_validate({"lr": 1e-3, **(self.optim or {})})


class World:
    """This rank, the models' folders and the images."""

    def __init__(self, settings: dict[str, Any], ranks: Ranks) -> None:
        self.ranks = ranks
        self.scratch = Path(settings["scratch"])
        self.models = settings["models"]
        self.store = ImageStore(self.scratch / f"images-{ranks.world_size}-{ranks.rank}")
        draw = np.random.default_rng(0)
        sizes = [(56, 56), (112, 84), (140, 240)]
        noise = [draw.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
        self.pictures = [self.store.add(Image.fromarray(pixels)) for pixels in noise]

    def config(self, case: Case) -> ModelConfig:
        settings = {"path": self.models[case.family], "dtype": "float32", "device": "cpu", **(case.model or {})}
        return ModelConfig.model_validate(settings)

    def whole_policy(self, case: Case, *, trainable: bool = True) -> PolicyModel:
        return load_policy(self.config(case), ImageConfig(), store=self.store, trainable=trainable)

    def sharded_policy(self, case: Case, *, trainable: bool = True) -> PolicyModel:
        return load_sharded_policy(
            self.config(case),
            ImageConfig(),
            store=self.store,
            fsdp=FsdpConfig.model_validate(case.fsdp or {}),
            ranks=self.ranks,
            trainable=trainable,
        )

    def batch(self, policy: PolicyModel, case: Case) -> GroupBatch:
        """Recorded: responses with a tool's answer and an empty one, advantages, and logprobs near the policy's."""
        draw = torch.Generator().manual_seed(3)
        batch = mixed_batch(policy, self.pictures, limit=LIMIT)
        if case.single_tokens:
            batch = _with_single_tokens(batch, case.edges[1])
        with torch.no_grad():
            logprobs = policy(batch, temperature=TEMPERATURE).logprobs
        mask = batch.response_mask

        def noise() -> Tensor:
            return torch.randn(mask.shape, generator=draw) * mask

        batch = batch.with_(
            advantages=noise(),
            old_logprobs=logprobs + 0.2 * noise(),
            reference_logprobs=logprobs + 0.3 * noise(),
            sampler_logprobs=logprobs + 0.2 * noise(),
            values=noise(),
            returns=noise(),
        )
        return batch.select_prompts(*case.prompts)

    def share(self, batch: GroupBatch, case: Case) -> GroupBatch:
        if self.ranks.world_size == 1:
            return batch
        edges = case.edges
        if len(edges) <= self.ranks.world_size:
            edges = (*edges, *[edges[-1]] * self.ranks.world_size)
        return batch.select_prompts(edges[self.ranks.rank], edges[self.ranks.rank + 1])

    def rows(self, batch: GroupBatch, case: Case) -> Tensor:
        """The rows of this rank's share."""
        if self.ranks.world_size == 1:
            return torch.arange(batch.num_rows)
        edges = (*case.edges, *[case.edges[-1]] * self.ranks.world_size)
        first, last = edges[self.ranks.rank], edges[self.ranks.rank + 1]
        return torch.nonzero((batch.prompt_of_row >= first) & (batch.prompt_of_row < last))[:, 0]


def objective(batch: GroupBatch) -> Any:
    config = GrpoConfig(group_size=4, kl=KlConfig(coef=0.05, estimator="k3"), entropy_coef=0.01)
    return build_algorithm(config).objective(batch, response_limit=LIMIT, first_update=False)


def compare_actor(world: World, case: Case) -> dict[str, Any]:
    """Gradient, its norm and metrics, logprobs, and the weights after two updates."""
    expected, found = (
        HfActor(policy, case.optim_config, case.train_config, temperature=TEMPERATURE, total_steps=9)
        for policy in (world.whole_policy(case), world.sharded_policy(case))
    )
    batch = world.batch(expected.policy, case)
    share, rows = world.share(batch, case), world.rows(batch, case)
    report: dict[str, Any] = {
        "logprobs": _rows_gap(found.logprobs(share).logprobs, expected.logprobs(batch).logprobs, rows)
    }

    goal = objective(batch)
    all_logprobs = expected.compute_gradients(batch, goal)
    own_logprobs = found.compute_gradients(share, goal)
    assert all_logprobs is not None
    assert own_logprobs is not None
    report["pass_logprobs"] = _rows_gap(own_logprobs, all_logprobs, rows)
    report["gradient"] = relative_gap(gradients(found.policy), gradients(expected.policy))
    report["metrics"] = _metrics_gap(found.apply_gradients(), expected.apply_gradients())
    second = batch.with_(advantages=-batch.advantages)
    goal = objective(second)
    for actor, part in ((expected, second), (found, world.share(second, case))):
        actor.train_step(part, goal)
    report["weights"] = relative_gap(dict(found.weights()), dict(expected.weights()))
    return report


def compare_critic(world: World, case: Case) -> dict[str, Any]:
    torch.manual_seed(5)
    models = [
        ValueModel(world.whole_policy(case)),
        load_sharded_value_model(
            world.config(case),
            ImageConfig(),
            store=world.store,
            fsdp=FsdpConfig.model_validate(case.fsdp or {}),
            ranks=world.ranks,
        ),
    ]
    expected, found = (
        HfCritic(model, CriticConfig(optim=case.optim_config), case.train_config, total_steps=9) for model in models
    )
    batch = world.batch(world.whole_policy(case), case)
    share, rows = world.share(batch, case), world.rows(batch, case)
    metrics = []
    for _ in range(2):
        goal = ValueObjective(batch, value_clip=0.5)
        metrics.append(_metrics_gap(found.train_step(share, goal), expected.train_step(batch, goal)))
    report = {"metrics": max(metrics), "values": _rows_gap(found.values(share), expected.values(batch), rows)}
    report["weights"] = relative_gap(parameters(found.model), parameters(expected.model))
    return report


def compare_reference(world: World, case: Case) -> dict[str, Any]:
    policies = (world.whole_policy(case, trainable=False), world.sharded_policy(case, trainable=False))
    batch = world.batch(policies[0], case)
    expected, found = (Reference(policy, case.train_config, temperature=TEMPERATURE) for policy in policies)
    rows = world.rows(batch, case)
    gaps = [_rows_gap(found.logprobs(world.share(batch, case)), expected.logprobs(batch), rows) for _ in range(2)]
    return {"logprobs": max(gaps)}


def gradients(model: nn.Module) -> Named:
    return {name: _whole(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None}


def parameters(model: nn.Module) -> Named:
    return {name: _whole(weight.detach()) for name, weight in model.named_parameters()}


def relative_gap(found: Named, expected: Named) -> float:
    """Of the 2-norms over all tensors together; infinite where the names differ."""
    if found.keys() != expected.keys():
        return float("inf")
    gap = sum(float((found[name] - tensor).double().square().sum()) for name, tensor in expected.items())
    return (gap / max(sum(float(tensor.double().square().sum()) for tensor in expected.values()), 1e-30)) ** 0.5


def _whole(tensor: Tensor) -> Tensor:
    return whole(tensor, torch.device("cpu"))


def _rows_gap(mine: Tensor, all_rows: Tensor, rows: Tensor) -> float:
    expected = all_rows[rows, : mine.shape[1]]
    return float((mine - expected).abs().max()) if mine.numel() else 0.0


def _metrics_gap(found: dict[str, float], expected: dict[str, float]) -> float:
    """Of metrics that do not depend on how rows are divided."""
    same = {name for name in expected if name not in ("num_micro_batches", "padding_share", "flops", "num_tokens")}
    if found.keys() != expected.keys():
        return float("inf")
    return max(abs(found[name] - expected[name]) / max(abs(expected[name]), 1e-3) for name in same)


def _with_single_tokens(batch: GroupBatch, num_prompts: int) -> GroupBatch:
    """Responses to the first prompts have one token at most."""
    short = batch.prompt_of_row < num_prompts
    mask = batch.response_mask.clone()
    mask[short, 1:] = 0
    lengths = torch.where(short, batch.response_lengths.clamp(max=1), batch.response_lengths)
    return batch.with_(response_mask=mask, response_lengths=lengths)


COMPARISONS: dict[str, Callable[[World, Case], dict[str, Any]]] = {
    "actor": compare_actor,
    "critic": compare_critic,
    "reference": compare_reference,
}


def worst(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for report in reports:
        for name, value in report.items():
            merged[name] = max(value, merged.get(name, value))
    return merged


def main(settings_file: str, checks: Sequence[Callable[[World], dict[str, Any]]] = ()) -> None:
    settings = json.loads(Path(settings_file).read_text())
    ranks = init_ranks("cpu", timeout_s=60)
    world = World(settings, ranks)
    report: dict[str, Any] = {}
    for entry in settings["cases"]:
        kind = entry.pop("kind", "actor")
        case = Case(**{name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()})
        try:
            report[case.name] = worst(ranks.gather(COMPARISONS[kind](world, case)))
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None
    if ranks.rank == 0:
        (world.scratch / f"report-{ranks.world_size}.json").write_text(json.dumps(report, indent=1))
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
