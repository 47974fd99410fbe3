"""A sharded model and a whole one on the same recorded rollouts, and how far what they compute is apart."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from mmrl.algorithms import build_algorithm
from mmrl.batch import GroupBatch, PreparedPrompt, build_group_batch
from mmrl.config.actor import FsdpConfig
from mmrl.config.algorithm import GrpoConfig, KlConfig
from mmrl.config.optim import OptimConfig
from mmrl.config.run import ImageConfig, ModelConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.shard_loading import load_sharded_policy, load_sharded_value_model
from mmrl.engines.sharding import Ranks
from mmrl.models.lockstep import whole
from mmrl.models.policy import ForwardPath, PolicyModel, load_policy
from mmrl.models.value_model import ValueModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from models_builders import mixed_batch, response

TEMPERATURE = 0.8
LIMIT = 9
Named = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """What is compared, and how it is divided.

    prompts: of the four of `mixed_batch`. edges: rank r has prompts edges[r]..edges[r+1]-1 of these.
    single_tokens: responses are cut to one token on rank 0. images_in_responses: those to the second prompt hold an
        image, and nothing else does. folder: in the scratch folder, for checkpoints.
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
    images_in_responses: bool = False
    folder: str = "checkpoint"

    @property
    def train_config(self) -> TrainConfig:
        return TrainConfig.model_validate({"micro_batch_tokens": 400, **(self.train or {})})

    @property
    def optim_config(self) -> OptimConfig:
        return OptimConfig.model_validate({"lr": 1e-3, **(self.optim or {})})


@dataclass(frozen=True, eq=False)
class Expected:
    """What the model in one piece computes: logprobs before, gradient and metrics of an update, weights after two."""

    logprobs: Tensor
    pass_logprobs: Tensor
    gradient: Named
    metrics: dict[str, float]
    weights: Named


class World:
    """This rank, the models' folders and the images."""

    def __init__(self, settings: dict[str, Any], ranks: Ranks) -> None:
        self.ranks = ranks
        self.scratch = Path(settings["scratch"])
        self.models = settings["models"]
        self.device = ranks.device.type
        self.store = ImageStore(self.scratch / f"images-{ranks.world_size}-{ranks.rank}")
        draw = np.random.default_rng(0)
        sizes = [(56, 56), (112, 84), (140, 240)]
        noise = [draw.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
        self.pictures = [self.store.add(Image.fromarray(pixels)) for pixels in noise]
        self._batches: dict[str, GroupBatch] = {}
        self._expected: dict[str, Expected] = {}

    def config(self, case: Case) -> ModelConfig:
        settings = {"path": self.models[case.family], "dtype": "float32", "device": self.device, **(case.model or {})}
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

    def sharded_value_model(self, case: Case) -> ValueModel:
        return load_sharded_value_model(
            self.config(case),
            ImageConfig(),
            store=self.store,
            fsdp=FsdpConfig.model_validate(case.fsdp or {}),
            ranks=self.ranks,
        )

    def actor(self, policy: PolicyModel, case: Case) -> HfActor:
        return HfActor(policy, case.optim_config, case.train_config, temperature=TEMPERATURE, total_steps=9)

    def batch(self, case: Case) -> GroupBatch:
        """Recorded: responses with a tool's answer and an empty one, advantages, and logprobs near the policy's."""
        key = repr((case.family, case.single_tokens and case.edges[1], case.images_in_responses))
        if key not in self._batches:
            self._batches[key] = self._record(case)
        return self._batches[key].select_prompts(*case.prompts)

    def expected(self, case: Case) -> Expected:
        """Computed by rank 0 alone, once for all cases that only divide the work in another way."""
        train = {name: value for name, value in (case.train or {}).items() if name == "path"}
        kind = (case.single_tokens, case.images_in_responses)
        key = repr((case.family, case.model, train, case.optim, case.prompts, *kind))
        if key not in self._expected:
            computed = self._compute(case) if self.ranks.rank == 0 else None
            self._expected[key] = self.ranks.gather(computed)[0]
        return self._expected[key]

    def _compute(self, case: Case) -> Expected:
        actor = self.actor(self.whole_policy(case), case)
        batch = self.batch(case)
        logprobs = actor.logprobs(batch).logprobs
        pass_logprobs = actor.compute_gradients(batch, objective(batch))
        assert pass_logprobs is not None
        gradient = {name: tensor.clone() for name, tensor in gradients(actor.policy).items()}
        metrics = actor.apply_gradients()
        actor.train_step(second_of(batch), objective(second_of(batch)))
        weights = {name: weight.cpu() for name, weight in actor.weights()}
        return Expected(logprobs, pass_logprobs, gradient, metrics, weights)

    def _record(self, case: Case) -> GroupBatch:
        draw = torch.Generator().manual_seed(3)
        policy = self.whole_policy(Case("recorded", family=case.family))
        batch = mixed_batch(policy, self.pictures, limit=LIMIT)
        if case.single_tokens:
            batch = _with_single_tokens(batch, case.edges[1])
        if case.images_in_responses:
            batch = _with_images_in_responses(batch, policy)
        path: ForwardPath = "packed" if case.images_in_responses else "prefix"
        with torch.no_grad():
            logprobs = policy(batch, temperature=TEMPERATURE, path=path).logprobs.cpu()
        mask = batch.response_mask

        def noise() -> Tensor:
            return torch.randn(mask.shape, generator=draw) * mask

        return batch.with_(
            advantages=noise(),
            old_logprobs=logprobs + 0.2 * noise(),
            reference_logprobs=logprobs + 0.3 * noise(),
            sampler_logprobs=logprobs + 0.2 * noise(),
            values=noise(),
            returns=noise(),
        )

    def share(self, batch: GroupBatch, case: Case) -> GroupBatch:
        if self.ranks.world_size == 1:
            return batch
        return batch.select_prompts(*self._range(case))

    def rows(self, batch: GroupBatch, case: Case) -> Tensor:
        """The rows of this rank's share."""
        if self.ranks.world_size == 1:
            return torch.arange(batch.num_rows)
        first, last = self._range(case)
        return torch.nonzero((batch.prompt_of_row >= first) & (batch.prompt_of_row < last))[:, 0]

    def _range(self, case: Case) -> tuple[int, int]:
        """First and last prompt of this rank; ranks beyond the edges have none."""
        edges = (*case.edges, *[case.edges[-1]] * self.ranks.world_size)
        return edges[self.ranks.rank], edges[self.ranks.rank + 1]


def objective(batch: GroupBatch) -> Any:
    config = GrpoConfig(group_size=4, kl=KlConfig(coef=0.05, estimator="k3"), entropy_coef=0.01)
    return build_algorithm(config).objective(batch, response_limit=LIMIT, first_update=False)


def second_of(batch: GroupBatch) -> GroupBatch:
    """The batch of the second update."""
    assert batch.advantages is not None
    return batch.with_(advantages=-batch.advantages)


def gradients(model: nn.Module) -> Named:
    return {name: _whole(weight.grad) for name, weight in model.named_parameters() if weight.grad is not None}


def parameters(model: nn.Module) -> Named:
    return {name: _whole(weight.detach()) for name, weight in model.named_parameters()}


def relative_gap(found: Named, expected: Named) -> float:
    """Of the 2-norms over all tensors together; infinite where the names differ."""
    if found.keys() != expected.keys():
        return float("inf")
    gap = sum(float((found[name].cpu() - tensor.cpu()).double().square().sum()) for name, tensor in expected.items())
    return (gap / max(sum(float(tensor.double().square().sum()) for tensor in expected.values()), 1e-30)) ** 0.5


def _whole(tensor: Tensor) -> Tensor:
    return whole(tensor, tensor.device).cpu()


def rows_gap(mine: Tensor, all_rows: Tensor, rows: Tensor) -> float:
    expected = all_rows[rows, : mine.shape[1]]
    return float((mine - expected).abs().max()) if mine.numel() else 0.0


def metrics_gap(found: dict[str, float], expected: dict[str, float]) -> float:
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


def _with_images_in_responses(batch: GroupBatch, policy: PolicyModel) -> GroupBatch:
    """Two prompts of text, with two responses each; in one to the second prompt an image lies between what was said."""
    text, image = batch.prompts[0].token_ids, batch.prompts[1].images[0]
    assert policy.prompts.image_token_id is not None
    shown = [policy.prompts.image_token_id] * image.num_tokens
    seeing = response([9, 8, *shown, 7, 6], [1, 1, *[0] * len(shown), 1, 1])
    groups = [[response([5, 6, 7]), response([8, 9])], [seeing, response([3, 4])]]
    prompts = [PreparedPrompt(text, ()), PreparedPrompt((*text, 5), ())]
    return build_group_batch(prompts, groups).with_(response_images=((), (), (image,), ()))
