"""Adapters on the prefix path, against peft's own forward pass; taken apart, sent, and taken up again."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from models_builders import mixed_batch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from mmrl.config import RunConfig
from mmrl.config.lora import LoraConfig
from mmrl.config.run import ImageConfig, ModelConfig, TrainConfig
from mmrl.engines.load_weights import load_named_weights
from mmrl.engines.reference import AdapterOffReference
from mmrl.errors import ModelError
from mmrl.models.lora import (
    adapter_config,
    adapter_state,
    adapter_weights,
    adapters_dropping,
    add_adapter,
    load_adapter,
    merged_state,
    save_adapter,
)
from mmrl.models.policy import checkpoint_names, load_policy, named_weights, save_policy

EVERYWHERE = ("language", "projector", "vision")


def adapted(
    tiny_model: Any, image_store: Any, *, targets: tuple[str, ...] = EVERYWHERE, seed: int = 1, **more: Any
) -> Any:
    """A policy whose adapter is something: B is drawn too."""
    lora = {"rank": 4, "alpha": 8.0, "targets": targets, **more}
    config = ModelConfig(path=str(tiny_model()), dtype="float32", device="cpu", lora=lora)  # type: ignore[arg-type]
    policy = load_policy(config, ImageConfig(), store=image_store)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.hf.named_parameters():
            if ".lora_B." in name:
                weight.copy_(torch.randn_like(weight) * 0.05)
    return policy


@pytest.fixture
def policy(tiny_model: Any, image_store: Any) -> Any:
    return adapted(tiny_model, image_store)


def test_only_adapters_are_trained_and_a_new_one_changes_nothing(
    tiny_model: Any, tiny_policy: Any, image_store: Any, pictures: Any
) -> None:
    config = ModelConfig(path=str(tiny_model()), dtype="float32", device="cpu", lora=LoraConfig(targets=EVERYWHERE))
    new = load_policy(config, ImageConfig(), store=image_store)
    trained = [name for name, weight in new.hf.named_parameters() if weight.requires_grad]
    assert trained
    assert all(".lora_" in name for name in trained)
    for part in ("language_model.layers.0.self_attn.q_proj", "visual.merger.mlp.0", "visual.blocks.0.attn.qkv"):
        assert any(part in name for name in trained)
    assert not any("lm_head" in name for name in trained)
    plain = tiny_policy()
    batch = mixed_batch(plain, pictures)
    assert torch.equal(new(batch).logprobs, plain(batch).logprobs)


@pytest.mark.parametrize("path", ["prefix", "plain"])
def test_gradients_are_those_of_pefts_own_forward_pass(
    policy: Any, tiny_model: Any, pictures: Any, tmp_path: Path, path: Any
) -> None:
    batch = mixed_batch(policy, pictures)
    save_adapter(adapter_state(policy.hf), adapter_config(policy.hf, str(tiny_model())), tmp_path)
    base = AutoModelForImageTextToText.from_pretrained(tiny_model(), dtype=torch.float32)
    theirs = PeftModel.from_pretrained(base, tmp_path, is_trainable=True).eval()
    total = torch.zeros(())
    for index, row in enumerate(batch.prompt_of_row.tolist()):
        prompt, length = batch.prompts[row], int(batch.response_lengths[index])
        ids = torch.tensor([*prompt.token_ids, *batch.response_ids[index, :length].tolist()])[None]
        inputs: dict[str, Any] = {"input_ids": ids}
        if prompt.images:
            inputs["pixel_values"] = torch.cat([image.pixel_values for image in prompt.images])
            inputs["image_grid_thw"] = torch.tensor([image.grid_thw for image in prompt.images])
            inputs["mm_token_type_ids"] = (ids == policy.prompts.image_token_id).int()
        logits = theirs(**inputs).logits[0, len(prompt) - 1 : -1].float()
        logits[:, policy.banned_token_ids] = -torch.inf
        chosen = logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None])[:, 0]
        total = total + (chosen * batch.response_mask[index, :length]).sum()
    total.backward()
    stats = policy(batch, path=path)
    assert stats.logprobs.sum().item() == pytest.approx(total.item(), rel=1e-5)
    stats.logprobs.sum().backward()
    wanted = {name: weight.grad for name, weight in theirs.named_parameters() if weight.requires_grad}
    found = {f"base_model.model.{name}": w.grad for name, w in policy.hf.named_parameters() if w.requires_grad}
    assert found.keys() == wanted.keys()
    scale = max(float(gradient.abs().max()) for gradient in wanted.values())
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5 * scale, msg=name)


def test_merged_weights_have_the_names_and_answers_of_a_plain_model(
    policy: Any, tiny_policy: Any, tiny_model: Any, image_store: Any, pictures: Any, tmp_path: Path
) -> None:
    batch = mixed_batch(policy, pictures)
    wanted = policy(batch).logprobs.detach()
    plain = tiny_policy(trainable=False)
    load_named_weights(plain, named_weights(policy))
    torch.testing.assert_close(plain(batch).logprobs, wanted, atol=1e-5, rtol=0)
    save_policy(policy, tmp_path / "merged")
    assert (
        load_file(tmp_path / "merged/model.safetensors").keys() == load_file(tiny_model() / "model.safetensors").keys()
    )
    again = load_policy(ModelConfig(path=str(tmp_path / "merged"), dtype="float32"), ImageConfig(), store=image_store)
    torch.testing.assert_close(again(batch).logprobs, wanted, atol=1e-5, rtol=0)
    assert checkpoint_names(policy.hf).keys().isdisjoint(adapter_state(policy.hf))


def test_an_adapter_alone_brings_a_copy_up_to_date(
    policy: Any, tiny_model: Any, image_store: Any, pictures: Any
) -> None:
    other = adapted(tiny_model, image_store, seed=5)
    batch = mixed_batch(policy, pictures)
    assert not torch.allclose(other(batch).logprobs, policy(batch).logprobs, atol=1e-4)
    load_named_weights(other, adapter_weights(policy.hf, policy.device))
    assert torch.equal(other(batch).logprobs, policy(batch).logprobs)
    with pytest.raises(ModelError, match=r"are not those of model\.lora"):
        load_named_weights(other, iter(list(adapter_weights(policy.hf, policy.device))[1:]))


def test_the_reference_is_the_base_with_the_adapter_off(policy: Any, tiny_policy: Any, pictures: Any) -> None:
    batch = mixed_batch(policy, pictures)
    reference = AdapterOffReference(policy, TrainConfig(), temperature=1.0)
    before = policy(batch).logprobs.detach()
    torch.testing.assert_close(reference.logprobs(batch), tiny_policy()(batch).logprobs.detach(), atol=1e-6, rtol=0)
    assert torch.equal(policy(batch).logprobs.detach(), before)
    assert any(weight.requires_grad for weight in policy.parameters())


def test_prompts_kept_for_the_update_are_not_those_of_the_reference(
    policy: Any, tiny_policy: Any, pictures: Any
) -> None:
    batch = mixed_batch(policy, pictures)
    policy.kept_prompts.max_tokens = 10**6
    with torch.no_grad():
        policy.prefill_for_update(batch.prompts)
    reference = AdapterOffReference(policy, TrainConfig(), temperature=1.0)
    torch.testing.assert_close(reference.logprobs(batch), tiny_policy()(batch).logprobs.detach(), atol=1e-6, rtol=0)
    assert policy.kept_prompts.of(batch.prompts)


def test_dropout_is_on_while_it_learns_and_off_else(tiny_model: Any, image_store: Any, pictures: Any) -> None:
    policy = adapted(tiny_model, image_store, dropout=0.5)
    batch = mixed_batch(policy, pictures)
    still = policy(batch).logprobs.detach()
    assert torch.equal(policy(batch).logprobs.detach(), still)
    with adapters_dropping(policy.hf):
        assert not torch.equal(policy(batch).logprobs.detach(), still)
    assert torch.equal(policy(batch).logprobs.detach(), still)


def test_an_adapter_of_other_settings_is_refused(
    policy: Any, tiny_model: Any, image_store: Any, tmp_path: Path
) -> None:
    save_adapter(adapter_state(policy.hf), adapter_config(policy.hf, str(tiny_model())), tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 4
    other = adapted(tiny_model, image_store, rank=2)
    with pytest.raises(ModelError, match=r"tensors are not those of model.lora \(rank, targets\)"):
        load_adapter(other.hf, tmp_path)


def test_the_first_adapter_weights_are_the_same_everywhere(tiny_model: Any, image_store: Any) -> None:
    config = ModelConfig(path=str(tiny_model()), dtype="float32", device="cpu", lora=LoraConfig(rank=4))
    one, other = (load_policy(config, ImageConfig(), store=image_store) for _ in range(2))
    first, second = adapter_state(one.hf), adapter_state(other.hf)
    assert all(torch.equal(first[name], second[name]) for name in first)
    drawn = [weight for name, weight in first.items() if ".lora_A." in name and weight.shape == (4, 128)]
    assert not torch.equal(drawn[0], drawn[1])


def test_a_copy_of_the_state_of_some_time_ago_is_merged_with_the_frozen_base(policy: Any) -> None:
    kept = {name: tensor.clone() for name, tensor in adapter_state(policy.hf).items()}
    before = merged_state(policy.hf, {**policy.hf.state_dict(), **kept})
    with torch.no_grad():
        for weight in policy.hf.parameters():
            if weight.requires_grad:
                weight.add_(1.0)
    after = merged_state(policy.hf, {**policy.hf.state_dict(), **kept})
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_o06_a_quantised_base_is_refused_before_anything_is_loaded(
    tiny_model: Any, image_store: Any, tmp_path: Path
) -> None:
    import shutil

    folder = shutil.copytree(tiny_model(), tmp_path / "four-bit")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (folder / "config.json").write_text(json.dumps(config))
    for lora in (None, LoraConfig(sync="merged"), LoraConfig(sync="adapter")):
        model = ModelConfig(path=str(folder), dtype="float32", device="cpu", lora=lora)
        with pytest.raises(ModelError, match=r"is quantised \(bitsandbytes\).*take the model that it was made from"):
            load_policy(model, ImageConfig(), store=image_store)


def test_parts_that_the_model_lacks_have_no_adapter(tiny_policy: Any) -> None:
    policy = copy.copy(tiny_policy("qwen2"))
    with pytest.raises(ModelError, match="'vision' is no part of a qwen2 model; it has language"):
        add_adapter(policy.hf, policy.family, LoraConfig(targets=("vision",)))


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        ({"freeze": ["vision"], "lora": {"targets": ["vision"]}}, {}, "vision is in model.freeze too"),
        ({"lora": {"dropout": 0.1}}, {}, "kind 'rl' has none"),
        ({"lora": {"sync": "adapter", "targets": ["vision"]}}, {"rollout": {"engine": "vllm"}}, "set sync: merged"),
        (
            {"lora": {"sync": "adapter"}},
            {"rollout": {"engine": "vllm", "sleep": "discard_weights"}},
            "would lose the weights beside the adapter",
        ),
        (
            {"lora": {"dropout": 0.1}},
            {"kind": "sft", "train": {"gradient_checkpointing": True}},
            "does not go with train.gradient_checkpointing",
        ),
    ],
)
def test_settings_that_do_not_fit_an_adapter_are_refused(model: Any, more: Any, message: str) -> None:
    plain = {"name": "n", "model": {"path": "m", **model}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
    with pytest.raises(ValueError, match=message):
        RunConfig.model_validate(plain | more)
