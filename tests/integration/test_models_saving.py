import pytest
import torch
from models_builders import FAMILIES, mixed_batch, mixed_samples
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.models.policy import load_policy, named_weights, save_policy


def perturb(policy):
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in policy.hf.parameters():
            weight.add_(torch.randn_like(weight) * 0.01)
    return policy


def reload(folder, store):
    return load_policy(ModelConfig(path=str(folder), dtype="float32", device="cpu"), ImageConfig(), store=store)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_export_has_the_sources_names_and_gives_the_same_logprobs(
    tiny_policy, tiny_model, pictures, image_store, tmp_path, family
):
    policy = perturb(tiny_policy(family))
    batch = mixed_batch(policy, pictures)
    save_policy(policy, tmp_path / "export")
    saved = load_file(tmp_path / "export" / "model.safetensors")
    assert saved.keys() == load_file(tiny_model(family) / "model.safetensors").keys()
    again = reload(tmp_path / "export", image_store)
    assert torch.equal(again(batch).logprobs, policy(batch).logprobs)
    auto = AutoModelForCausalLM if family == "qwen2" else AutoModelForImageTextToText
    model, info = auto.from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert torch.equal(model.lm_head.weight, policy.hf.lm_head.weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_renders_token_identical_after_an_export(tiny_policy, pictures, image_store, tmp_path, family):
    """C09, twice over: the export of an export too."""
    policy = tiny_policy(family)
    save_policy(policy, tmp_path / "first")
    save_policy(reload(tmp_path / "first", image_store), tmp_path / "second")
    again = reload(tmp_path / "second", image_store)
    for one in mixed_samples(pictures, sees_images=family != "qwen2"):
        before, after = policy.prompts.prepare(one), again.prompts.prepare(one)
        assert before.token_ids == after.token_ids
        assert all(
            torch.equal(old.pixel_values, new.pixel_values)
            for old, new in zip(before.images, after.images, strict=True)
        )
    assert again.end_token_ids == policy.end_token_ids
    for name in ("tokenizer_config.json", "tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "first" / name).read_text() == (tmp_path / "second" / name).read_text()


@pytest.mark.parametrize("family", FAMILIES)
def test_named_weights_are_what_a_checkpoint_holds(tiny_policy, tmp_path, family):
    policy = perturb(tiny_policy(family))
    save_policy(policy, tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    named = dict(named_weights(policy))
    assert named.keys() == saved.keys()
    assert all(torch.equal(named[name], saved[name]) for name in saved)
    assert not any(weight.requires_grad for weight in named.values())


def test_tied_weights_are_named_and_saved_once(tiny_model, image_store, tmp_path):
    policy = perturb(reload(tiny_model("qwen2_5_vl", tie_embeddings=True), image_store))
    assert "lm_head.weight" not in dict(named_weights(policy))
    save_policy(policy, tmp_path)
    again = reload(tmp_path, image_store)
    assert again.hf.lm_head.weight is again.hf.get_input_embeddings().weight
    assert torch.equal(again.hf.lm_head.weight, policy.hf.lm_head.weight)


def test_an_export_may_be_rounded_to_bfloat16(tiny_policy, tmp_path):
    policy = tiny_policy("qwen2")
    save_policy(policy, tmp_path, dtype=torch.bfloat16)
    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}
    assert AutoModelForCausalLM.from_pretrained(tmp_path).dtype == torch.bfloat16
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}
