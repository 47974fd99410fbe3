"""The canary between a real sampler and a real actor: silent while they agree, and loud about each way to disagree."""

from __future__ import annotations

import copy

import pytest
import torch
from PIL import Image

from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import CanaryConfig, ImageConfig, ModelConfig, OptimConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.base import SamplingParams
from mmrl.engines.canary import SyncGap, check, compare
from mmrl.engines.rollout_hf import HfRollout
from mmrl.errors import RunFailedError
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.models.tiny import build_tiny
from mmrl.types import ImagePart, Message, Sample, TextPart

CONFIG = CanaryConfig()


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def policy(tmp_path_factory, store) -> PolicyModel:
    folder = build_tiny("qwen2_5_vl", tmp_path_factory.mktemp("model"), seed=2)
    config = ModelConfig(path=str(folder), dtype="float32", device="cpu")
    policy = load_policy(config, ImageConfig(), store=store)
    # Sharper than at random, so that a wrong temperature or stale weights show.
    policy.family.head(policy.hf).weight.data.mul_(8)
    return policy


@pytest.fixture(scope="module")
def samples(store) -> list[Sample]:
    image = ImagePart(store.add(Image.effect_noise((84, 56), 60).convert("RGB")))
    contents = [(TextPart("Say one."),), (image, TextPart("Which digit is this?")), (TextPart("Odd or even, then?"),)]
    return [Sample(id=str(index), messages=(Message("user", content),)) for index, content in enumerate(contents)]


def sample_batch(policy: PolicyModel, samples: list[Sample], params: SamplingParams) -> GroupBatch:
    groups = HfRollout(policy, RolloutConfig()).generate(samples, params, num_responses=4, seed=0, step=1)
    return build_group_batch([policy.prompts.prepare(sample) for sample in samples], [g.rollouts for g in groups])


def gap_between(batch: GroupBatch, policy: PolicyModel, temperature: float) -> SyncGap:
    actor = HfActor(policy, OptimConfig(), TrainConfig(micro_batch_tokens=150), temperature=temperature, total_steps=1)
    has_image = torch.tensor([bool(prompt.images) for prompt in batch.prompts])[batch.prompt_of_row]
    logprobs = actor.logprobs(batch).logprobs
    return compare(batch.sampler_logprobs, logprobs, batch.response_mask, has_image, gap=CONFIG.gap)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.6}, {"temperature": 1.3}, {"top_p": 0.8, "top_k": 20}])
def test_sampler_and_actor_agree_at_any_temperature_and_truncation(policy, samples, options):
    params = SamplingParams(max_response_tokens=16, **options)
    gap = gap_between(sample_batch(policy, samples, params), policy, params.temperature)
    assert gap.overall.logprob_gap_max < 1e-5
    assert gap.text.num_tokens + gap.image.num_tokens == gap.overall.num_tokens > 50
    assert gap.overall.effective_sample_size == pytest.approx(1)
    check(gap, CONFIG, "float32")


def test_a_temperature_on_one_side_only_is_caught(policy, samples):
    batch = sample_batch(policy, samples, SamplingParams(max_response_tokens=16, temperature=0.6))
    with pytest.raises(RunFailedError, match="a temperature, or the ban"):
        check(gap_between(batch, policy, 1.0), CONFIG, "bfloat16")


def test_a_sampler_with_old_weights_is_caught(policy, samples):
    batch = sample_batch(policy, samples, SamplingParams(max_response_tokens=16))
    newer = copy.deepcopy(policy, {id(policy.prompts): policy.prompts})
    for parameter in newer.parameters():
        parameter.data.mul_(1.02)
    with pytest.raises(RunFailedError, match=r"canary\.max_gap_float32.*weights that did not reach the sampler"):
        check(gap_between(batch, newer, 1.0), CONFIG, "float32")


def test_an_image_that_the_two_sides_see_differently_is_told_from_the_rest(policy, samples):
    batch = sample_batch(policy, samples, SamplingParams(max_response_tokens=16))
    tower = copy.deepcopy(policy, {id(policy.prompts): policy.prompts})
    for parameter in tower.hf.model.visual.parameters():
        parameter.data.mul_(3)
    with pytest.raises(RunFailedError, match=r"disagree on prompts with images.*pixel limits"):
        check(gap_between(batch, tower, 1.0), CONFIG, "float32")
