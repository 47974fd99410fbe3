import pytest
import torch
from models_builders import VISION_FAMILIES, mixed_batch

from mmrl.errors import ModelError
from mmrl.models.freezing import apply_freeze


def trained_names(policy):
    return {name for name, weight in policy.hf.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_the_parts_divide_all_weights_among_them(tiny_policy, family):
    policy = tiny_policy(family)
    every = trained_names(policy)
    left = {}
    for part in ("vision", "projector", "language"):
        apply_freeze(policy, [part])
        left[part] = every - trained_names(policy)
    assert left["vision"] | left["projector"] | left["language"] == every
    assert sum(map(len, left.values())) == len(every)
    assert all("visual" in name and "merger" not in name for name in left["vision"])
    assert left["projector"]
    assert all("merger" in name for name in left["projector"])
    assert {"lm_head.weight", "model.language_model.norm.weight"} <= left["language"]


def test_freezing_again_lifts_what_was_frozen_before(tiny_policy):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    apply_freeze(policy, ["projector"])
    assert "model.visual.blocks.0.attn.qkv.weight" in trained_names(policy)


def test_a_frozen_vision_runs_without_gradients(tiny_policy, pictures):
    policy = tiny_policy("qwen3_vl", freeze=("vision", "projector"))
    batch = mixed_batch(policy, pictures)
    features = policy.family.encode_images(policy.hf, [image for prompt in batch.prompts for image in prompt.images])
    assert not features.embeds.requires_grad
    assert not any(level.requires_grad for level in features.deepstack)


def test_with_a_frozen_tower_gradients_begin_at_the_projector(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision", "language"))
    policy(mixed_batch(policy, pictures)).logprobs.sum().backward()
    with_gradient = {name for name, weight in policy.hf.named_parameters() if weight.grad is not None}
    assert with_gradient == {name for name in trained_names(policy) if ".merger." in name}
    assert all(torch.isfinite(weight.grad).all() for weight in policy.parameters() if weight.grad is not None)


def test_a_part_that_a_text_model_lacks_is_refused(tiny_policy):
    with pytest.raises(ModelError, match=r"model\.freeze: 'vision' is no part of a qwen2 model; it has language"):
        tiny_policy("qwen2", freeze=("vision",))


def test_freezing_everything_is_refused(tiny_policy):
    with pytest.raises(ModelError, match="leave one part to be trained"):
        tiny_policy("qwen2_5_vl", freeze=("vision", "projector", "language"))


def test_a_policy_that_is_not_trainable_has_no_trainable_weight(tiny_policy):
    assert not trained_names(tiny_policy("qwen2_5_vl", trainable=False))
