"""One row, one prompt: the same pixels, grids and ids in preview, length count, rollout and actor."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import data_rows
import pytest
import torch
from data_rows import good_row

from mmrl.batch import PreparedPrompt, build_group_batch
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import ImageConfig, ModelConfig, OptimConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.data.normalise import normalise_row
from mmrl.data.registry import DatasetRegistry
from mmrl.data.rows import RawRow
from mmrl.engines.actor import HfActor
from mmrl.engines.base import SamplingParams
from mmrl.engines.rollout_hf import HfRollout
from mmrl.models.loading import load_prompts
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.trainer.preview import Previewer
from mmrl.types import Sample

NUM_ROWS = 500
IMAGE = ImageConfig(min_pixels=784, max_pixels=12_544)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("same")


@pytest.fixture(scope="module")
def store(folder: Path) -> ImageStore:
    return ImageStore(folder / "images")


@pytest.fixture(scope="module")
def rows(folder: Path, store: ImageStore) -> list[Sample]:
    """Read from rows of all forms, registered, and read back."""
    draw = random.Random(7)
    read = []
    for index in range(NUM_ROWS):
        row = RawRow(index + 1, good_row(draw, folder, index))
        sample = normalise_row(row, file="f.jsonl", split="train", root=folder, add_image=store.add)
        assert isinstance(sample, Sample), sample
        read.append(sample)
    registry = DatasetRegistry(folder / "datasets")
    info = registry.register("same", {"train": read}, source="generated")
    return list(registry.read(info, "train"))


def policy_of(model: Path, store: ImageStore) -> PolicyModel:
    return load_policy(ModelConfig(path=str(model), dtype="float32", device="cpu"), IMAGE, store=store)


class Seen:
    """The prompts that a policy was really given."""

    def __init__(self, policy: PolicyModel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prompts: list[PreparedPrompt] = []
        own = policy.prefill

        def prefill(prompts: Any, *arguments: Any, **options: Any) -> Any:
            self.prompts += prompts
            return own(prompts, *arguments, **options)

        monkeypatch.setattr(policy, "prefill", prefill)


def test_d03_d09_d10_v14_every_use_of_a_row_sees_the_same_prompt(
    rows: list[Sample], store: ImageStore, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = Counter(len(sample.images) for sample in rows)
    assert set(counts) == {0, 1, 2, 3, 5}
    sampler, trained = policy_of(tiny_model(), store), policy_of(tiny_model(), store)
    sampled, forwarded = Seen(sampler, monkeypatch), Seen(trained, monkeypatch)
    preview = Previewer(load_prompts(str(tiny_model()), IMAGE, store=store), max_prompt_tokens=None, resizes=False)
    counter = load_prompts(str(tiny_model()), IMAGE, store=store)

    rollout = HfRollout(sampler, RolloutConfig(max_batch_rows=128))
    groups = rollout.generate(rows, SamplingParams(max_response_tokens=2), num_responses=1, seed=0, step=1)
    actor = HfActor(trained, OptimConfig(), TrainConfig(), temperature=1.0, total_steps=1)
    batch = build_group_batch([trained.prompts.prepare(one) for one in rows], [group.rollouts for group in groups])
    logprobs = actor.logprobs(batch).logprobs

    assert len(sampled.prompts) == len(rows)
    by_length = {id(prompt): prompt for prompt in forwarded.prompts}
    assert len(by_length) == len(rows), "the actor forwards each prompt once"
    assert rollout.last_stats is not None
    assert rollout.last_stats.prompt_tokens == sum(len(prompt) for prompt in sampled.prompts)
    forwarded_of = {
        prompt.token_ids + tuple(image.sha256 for image in prompt.images): prompt for prompt in batch.prompts
    }
    for sample, prompt, own in zip(rows, sampled.prompts, batch.prompts, strict=True):
        seen, shown = forwarded_of[own.token_ids + tuple(image.sha256 for image in own.images)], preview(sample)
        assert prompt.token_ids == seen.token_ids == own.token_ids
        assert counter.num_tokens(sample) == len(prompt) == shown.prompt_tokens
        assert len(prompt.images) == len(sample.images)
        for one, other, small, reference in zip(prompt.images, own.images, shown.images, sample.images, strict=True):
            assert one.sha256 == other.sha256 == small.sha256 == reference.sha256
            assert one.grid_thw == other.grid_thw
            assert one.processed_size == other.processed_size == small.processed_size
            assert one.num_tokens == small.tokens == one.pixel_values.shape[0] // 4
            assert torch.equal(one.pixel_values, other.pixel_values)
    gap = (logprobs - batch.sampler_logprobs).abs().max()
    assert gap < 1e-4, "sampler and actor speak of one distribution"


def test_d03_one_image_in_every_form_is_one_image(folder: Path, store: ImageStore) -> None:
    image = data_rows.picture(random.Random(1), "RGBA", (32, 32))
    hashes = set()
    for form in data_rows.FORMS:
        value = data_rows.shown_as(form, image, folder, "one.img")
        row = {"prompt": "<image>?", "images": [value]}
        if "part" in form:
            row = {"messages": [{"role": "user", "content": [value, {"type": "text", "text": "?"}]}]}
        sample = normalise_row(RawRow(1, row), file="f", split="train", root=folder, add_image=store.add)
        assert isinstance(sample, Sample), (form, sample)
        hashes.add(sample.images[0].sha256)
    assert len(hashes) == 1
