import copy

import pytest
import torch
from models_builders import VISION_FAMILIES, mixed_batch

from mmrl.models.features import ImageEncoder
from mmrl.models.freezing import apply_freeze


def images_of(batch):
    return [image for prompt in batch.prompts for image in prompt.images]


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_features_before_the_projectors_and_through_them_are_what_the_tower_gives(tiny_policy, pictures, family):
    policy = tiny_policy(family)
    images = images_of(mixed_batch(policy, pictures))
    with torch.no_grad():
        whole = policy.family.encode_images(policy.hf, images)
        levels = policy.family.tower_features(policy.hf, images)
        projected = policy.family.project(policy.hf, levels)
        again = policy.family.encode_images(policy.hf, images)
    assert levels[0].shape[0] == sum(image.num_tokens for image in images)
    assert torch.allclose(projected.embeds, whole.embeds, atol=1e-6)
    assert torch.equal(again.embeds, whole.embeds)
    assert len(projected.deepstack) == len(whole.deepstack) == (family == "qwen3_vl")
    for found, expected in zip(projected.deepstack, whole.deepstack, strict=True):
        assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("freeze", [("vision",), ("vision", "projector")])
@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_a_frozen_tower_sees_an_image_once_and_gradients_stay(tiny_policy, pictures, tower_calls, family, freeze):
    policy = tiny_policy(family, freeze=freeze)
    batch = mixed_batch(policy, pictures)
    policy(batch).logprobs.sum().backward()
    first = {name: weight.grad.clone() for name, weight in policy.named_parameters() if weight.grad is not None}
    policy.zero_grad()
    with torch.no_grad():
        policy.prefill(batch.prompts)
    policy(batch).logprobs.sum().backward()
    assert tower_calls == [3]
    for name, gradient in first.items():
        assert torch.allclose(dict(policy.named_parameters())[name].grad, gradient, atol=1e-6)
    fresh = tiny_policy(family)
    assert torch.allclose(policy(batch).logprobs, fresh(batch).logprobs, atol=1e-5)


def test_a_tower_that_trains_sees_images_at_every_pass(tiny_policy, pictures, tower_calls):
    policy = tiny_policy("qwen2_5_vl", freeze=("projector", "language"))
    batch = mixed_batch(policy, pictures)
    policy(batch)
    policy(batch)
    assert tower_calls == [3, 3]


def test_only_images_that_are_missing_are_tower_calls(tiny_policy, pictures, tower_calls):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    batch = mixed_batch(policy, pictures)
    with torch.no_grad():
        alone = policy.prefill(batch.prompts[2:3])
        policy.prefill(batch.prompts)
        again = policy.prefill(batch.prompts[2:3])
    assert tower_calls == [2, 1]
    assert torch.equal(alone.last_hidden, again.last_hidden)


@pytest.mark.parametrize("freeze", [("vision",), ("vision", "projector")])
def test_new_weights_drop_what_came_from_old_ones(tiny_policy, pictures, tower_calls, freeze):
    policy = tiny_policy("qwen2_5_vl", freeze=freeze)
    batch = mixed_batch(policy, pictures)
    before = policy(batch).logprobs
    other = tiny_policy("qwen2_5_vl")
    with torch.no_grad():
        for name, weight in other.hf.named_parameters():
            if "visual" in name:
                weight.mul_(1.5)
                policy.hf.get_parameter(name).copy_(weight)
    after = policy(batch).logprobs
    assert tower_calls == [3, 3]
    assert not torch.allclose(after, before)
    assert torch.allclose(after, other(batch).logprobs, atol=1e-5)


def test_a_trained_projector_does_not_drop_what_the_tower_gave(tiny_policy, pictures, tower_calls):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    batch = mixed_batch(policy, pictures)
    before = policy(batch).logprobs
    with torch.no_grad():
        for weight in policy.hf.model.visual.merger.parameters():
            weight.mul_(1.5)
    assert not torch.allclose(policy(batch).logprobs, before)
    assert tower_calls == [3]


def test_freezing_something_else_starts_anew(tiny_policy, pictures, tower_calls):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    batch = mixed_batch(policy, pictures)
    before = policy(batch).logprobs
    apply_freeze(policy, ["vision", "projector"])
    assert torch.allclose(policy(batch).logprobs, before, atol=1e-6)
    assert tower_calls == [3, 3]


def test_a_copy_of_the_policy_keeps_features_of_its_own(tiny_policy, pictures, tower_calls):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    batch = mixed_batch(policy, pictures)
    policy(batch)
    copied = copy.deepcopy(policy, {id(item): item for item in (policy.prompts, policy.family)})
    copied(batch)
    assert tower_calls == [3, 3]
    assert copied.images is not policy.images


def test_features_are_kept_up_to_the_bound(tiny_policy, pictures, tower_calls):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    images = images_of(mixed_batch(policy, pictures))[:3]
    one_token = 4 * 64 * 4
    policy.images = ImageEncoder(policy.family, cache_bytes=one_token * images[0].num_tokens)
    whole = policy.images.encode(policy.hf, images)
    small = policy.images.encode(policy.hf, images[:1])
    assert torch.allclose(small.embeds, whole.embeds[: images[0].num_tokens], atol=1e-6)
    assert tower_calls == [3, 1]
    policy.images.encode(policy.hf, images[:1])
    assert tower_calls == [3, 1]
