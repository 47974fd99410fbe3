"""What the shared conformance test of rollout engines is run on: the engines, a model, samples, and the actor's view.

A new engine is one more entry of `ENGINES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmrl.batch import build_group_batch
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import ImageConfig, ModelConfig, RunConfig
from mmrl.data.images import ImageStore
from mmrl.engines.base import RolloutEngine, SamplingParams
from mmrl.engines.rollout_needs import RolloutNeeds
from mmrl.models.loading import load_prompts
from mmrl.models.policy import PolicyModel, load_policy, save_policy
from mmrl.types import ImagePart, ImageRef, Message, Rollout, RolloutGroup, Sample, TextPart

MakeEngine = Callable[[Path, ImageStore, int], RolloutEngine]
"""Model folder, image store and most rows in a batch -> an engine with weights of its own, in float32 on the CPU."""


def _make_hf(folder: Path, store: ImageStore, max_batch_rows: int) -> RolloutEngine:
    from mmrl.engines.rollout_hf import HfRollout

    policy = load_cpu_policy(folder, store)
    return HfRollout(policy, RolloutConfig(max_batch_rows=max_batch_rows), shares_weights=False)


def _make_vllm(folder: Path, store: ImageStore, max_batch_rows: int) -> RolloutEngine:
    from mmrl.engines.vllm_build import build_vllm_rollout

    config = vllm_config(folder, max_batch_rows=max_batch_rows)
    prompts = load_prompts(str(folder), config.data.image, store=store)
    return build_vllm_rollout(config, prompts, ROOMY, model_folder=folder)


ENGINES: dict[str, MakeEngine] = {"hf": _make_hf, "vllm": _make_vllm}

ROOMY = RolloutNeeds(
    max_prompt_tokens=400, max_images=2, max_image_tokens=128, max_image_pixels=128 * 28**2, max_response_tokens=64
)
"""Room for all of `make_samples` and what the tests ask about them."""


def vllm_config(folder: Path, **rollout: Any) -> RunConfig:
    """In float32 on the CPU with a small cache."""
    return RunConfig.model_validate(
        {
            "name": "rollout",
            "model": {"path": str(folder), "dtype": "float32", "device": "cpu"},
            "data": {"train": "none"},
            "rollout": {"engine": "vllm", "kv_cache_gib": 0.1, **rollout},
            "placement": {"executor": "ray", "pools": {"main": {"workers": rollout.get("tensor_parallel", 1)}}},
        }
    )


def load_cpu_policy(folder: Path, store: ImageStore) -> PolicyModel:
    config = ModelConfig(path=str(folder), dtype="float32", device="cpu")
    return load_policy(config, ImageConfig(), store=store, trainable=False)


@torch.no_grad()
def save_lively_model(tiny_folder: Path, folder: Path, store: ImageStore) -> Path:
    """The tiny model with an output layer that makes a test of it.

    Tokens get clearly unequal probabilities; vision and control ids are often the likeliest of all, by far, were they
    not banned; and responses end by themselves after some tokens, or do not.
    """
    policy = load_cpu_policy(tiny_folder, store)
    head = policy.family.head(policy.hf).weight
    draw = torch.Generator().manual_seed(3)
    head.mul_(4.0)
    for token_id in policy.prompts.banned_token_ids:
        head[token_id] = torch.randn(head.shape[1], generator=draw)
    for token_id in policy.end_token_ids:
        head[token_id] *= 2.0
    save_policy(policy, folder)
    return folder


def make_samples(pictures: Sequence[ImageRef]) -> list[Sample]:
    """Text only, one image, two images, one of those again, and text only: prompts of unequal lengths."""
    small, medium, large = pictures
    contents: list[tuple[str | ImageRef, ...]] = [
        ("What is 12 + 34?",),
        (small, "Which digit is shown in the image?"),
        (large, "Compare it with ", medium, " and say more."),
        (medium, "Odd or even?"),
        ("Count from one to nine and say which of them are odd.",),
    ]
    return [
        Sample(f"sample-{index}", (Message("user", tuple(map(_part, content))),))
        for index, content in enumerate(contents)
    ]


def _part(content: str | ImageRef) -> TextPart | ImagePart:
    return TextPart(content) if isinstance(content, str) else ImagePart(content)


@dataclass(frozen=True)
class ActorsView:
    """What the actor says of sampled tokens: both (B, T), zero behind a response; mask (B, T)."""

    sampler: Tensor
    actor: Tensor
    mask: Tensor

    @property
    def largest_gap(self) -> float:
        return float((self.sampler - self.actor).abs().max())


@torch.no_grad()
def view_of_actor(policy: PolicyModel, groups: Sequence[RolloutGroup], temperature: float) -> ActorsView:
    prompts = [policy.prompts.prepare(group.sample) for group in groups]
    batch = build_group_batch(prompts, [group.rollouts for group in groups])
    actor = policy(batch, temperature=temperature).logprobs.cpu()
    assert batch.sampler_logprobs is not None
    return ActorsView(batch.sampler_logprobs, actor, batch.response_mask)


@torch.no_grad()
def argmax_decoding(model: Any, actor: PolicyModel, sample: Sample, banned: Tensor, *, limit: int) -> list[int]:
    """The greedy response of a plain transformers model, which forwards everything anew for each token."""
    prompt = actor.prompts.prepare(sample)
    ids, response = list(prompt.token_ids), []
    images = {}
    if prompt.images:
        images["pixel_values"] = torch.cat([image.pixel_values for image in prompt.images])
        images["image_grid_thw"] = torch.tensor([image.grid_thw for image in prompt.images])
    while len(response) < limit and not set(response) & actor.end_token_ids:
        tokens = torch.tensor([ids + response])
        kinds = (tokens == model.config.image_token_id).long()
        logits = model(input_ids=tokens, mm_token_type_ids=kinds, use_cache=False, **images).logits[0, -1]
        response.append(int(logits.index_fill(0, banned, -math.inf).argmax()))
    return response


def stop_over_several_tokens(policy: PolicyModel, rollouts: Sequence[Rollout]) -> str:
    """Four letters that a rollout says and no single one of its tokens."""
    for rollout in rollouts:
        pieces = [policy.prompts.decode([token_id]) for token_id in rollout.token_ids]
        for start in range(4, len(rollout.text) - 3):
            stop = rollout.text[start : start + 4]
            if "\ufffd" not in stop and not any(stop in piece for piece in pieces):
                return stop
    raise AssertionError("no response has four readable letters in a row that several tokens make up")


def ids_of(groups: Sequence[RolloutGroup]) -> list[list[tuple[int, ...]]]:
    return [[rollout.token_ids for rollout in group.rollouts] for group in groups]


def params(limit: int, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0, stop: str = "") -> SamplingParams:
    return SamplingParams(limit, temperature, top_p, top_k, (stop,) if stop else ())
