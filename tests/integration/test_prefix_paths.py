"""Prefix path, plain path and Hugging Face's own forward pass give the same log-probabilities and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from models_builders import FAMILIES, VISION_FAMILIES, mixed_batch, mixed_samples
from qwen_vl_utils.vision_process import fetch_image
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor

from mmrl.types import TextPart

LOGPROB_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
TEMPERATURE = 0.7


def weighted_loss(logprobs):
    """A loss in which every token has a weight of its own."""
    return (logprobs * torch.randn(logprobs.shape, generator=torch.Generator().manual_seed(1))).sum()


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def assert_same_gradients(first, second):
    assert first.keys() == second.keys()
    for name, expected in second.items():
        gap = (first[name] - expected).norm() / expected.norm().clamp(min=1e-12)
        assert gap < GRADIENT_TOLERANCE, f"{name}: {gap:.2e}"


def both_paths(policy, batch):
    results = []
    for path in ("prefix", "plain"):
        stats = policy(batch, temperature=TEMPERATURE, path=path, with_entropy=True)
        gradients = gradients_of(policy.hf, weighted_loss(stats.logprobs) + 0.1 * stats.entropy.sum())
        results.append((stats.logprobs.detach(), stats.entropy.detach(), gradients))
    return results


FREEZES = [(), ("vision",), ("vision", "projector"), ("language",)]


@pytest.mark.parametrize("family", FAMILIES)
def test_both_paths_agree_with_gradient_checkpointing_and_with_the_model_without_it(tiny_policy, pictures, family):
    policy = tiny_policy(family)
    batch = mixed_batch(policy, pictures)
    (plain_logprobs, _, expected), _ = both_paths(policy, batch)
    policy.checkpoint_gradients()
    for logprobs, _, gradients in both_paths(policy, batch):
        assert (logprobs - plain_logprobs).abs().max() < LOGPROB_TOLERANCE
        assert_same_gradients(gradients, expected)


def test_checkpointed_layers_keep_their_inputs_only(tiny_policy, pictures):
    """What the graph holds between the passes, counted as torch packs it away."""
    sizes = []
    for checkpointed in (False, True):
        policy = tiny_policy("qwen2_5_vl")
        if checkpointed:
            policy.checkpoint_gradients()
        batch, held = mixed_batch(policy, pictures), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, held=held: held.append(t.nbytes) or t, lambda t: t):
            policy(batch)
        sizes.append(sum(held))
    assert sizes[1] < 0.6 * sizes[0]


@pytest.mark.parametrize(
    ("family", "freeze"), [*itertools.product(VISION_FAMILIES, FREEZES), ("qwen2", ())], ids=lambda value: str(value)
)
def test_prefix_and_plain_path_agree(tiny_policy, pictures, family, freeze):
    policy = tiny_policy(family, freeze=freeze)
    batch = mixed_batch(policy, pictures, with_vision_id=family != "qwen2")
    (prefix, prefix_entropy, prefix_gradients), (plain, plain_entropy, plain_gradients) = both_paths(policy, batch)
    assert (prefix - plain).abs().max() < LOGPROB_TOLERANCE
    assert (prefix_entropy - plain_entropy).abs().max() < LOGPROB_TOLERANCE
    assert_same_gradients(prefix_gradients, plain_gradients)
    trained = {name for name, weight in policy.hf.named_parameters() if weight.requires_grad}
    assert set(prefix_gradients) == trained
    assert (prefix[batch.response_mask == 0] == 0).all()
    assert (prefix[batch.response_mask > 0] < 0).all()


def hf_prompt(processor, one, store):
    """The prompt as the model's own processor makes it, images resized by qwen-vl-utils; only the store is ours."""
    patch_size = processor.image_processor.patch_size

    def fetch(reference):
        return fetch_image({"image": store.open(reference)}, image_patch_size=patch_size)

    turns = [
        {
            "role": message.role,
            "content": [
                {"type": "text", "text": part.text}
                if isinstance(part, TextPart)
                else {"type": "image", "image": fetch(part.image)}
                for part in message.content
            ],
        }
        for message in one.messages
    ]
    arguments = {"tokenize": True, "add_generation_prompt": True, "return_dict": True, "return_tensors": "pt"}
    return processor.apply_chat_template(turns, **arguments)


def hf_logprobs(model, inputs, response_ids, banned):
    """Log-probabilities of one response behind one prompt, from one unpadded row and the full forward pass."""
    inputs = dict(inputs)
    length = inputs["input_ids"].shape[1]
    row = torch.tensor([response_ids], dtype=torch.int64)
    inputs["input_ids"] = torch.cat([inputs["input_ids"], row], dim=1)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    if "mm_token_type_ids" in inputs:
        inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(row)], dim=1)
    logits = model(**inputs, use_cache=False).logits[0, length - 1 : -1].float() / TEMPERATURE
    logits = logits.index_fill(-1, torch.tensor(banned), -torch.inf)
    return torch.log_softmax(logits, dim=-1).gather(-1, row[0][:, None])[:, 0]


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_both_paths_equal_hugging_faces_own_forward_pass(tiny_policy, tiny_model, pictures, image_store, family):
    policy = tiny_policy(family)
    batch = mixed_batch(policy, pictures)
    folder = tiny_model(family)
    model = AutoModelForImageTextToText.from_pretrained(folder, attn_implementation="eager").eval()
    processor = AutoProcessor.from_pretrained(folder)
    prompts = [hf_prompt(processor, one, image_store) for one in mixed_samples(pictures)]
    expected = torch.zeros_like(batch.response_mask)
    rows = []
    for row, prompt in enumerate(batch.prompt_of_row.tolist()):
        ids = batch.response_ids[row, : batch.response_lengths[row]].tolist()
        values = torch.zeros_like(expected[row])
        if ids:
            found = hf_logprobs(model, prompts[prompt], ids, policy.prompts.banned_token_ids)
            values = torch.cat([found, values[len(ids) :]]) * batch.response_mask[row]
        rows.append(values)
    oracle = torch.stack(rows)
    oracle_gradients = gradients_of(model, weighted_loss(oracle))
    for path in ("prefix", "plain"):
        logprobs = policy(batch, temperature=TEMPERATURE, path=path).logprobs
        assert (logprobs - oracle).abs().max() < LOGPROB_TOLERANCE
        assert_same_gradients(gradients_of(policy.hf, weighted_loss(logprobs)), oracle_gradients)


def test_both_paths_equal_hugging_faces_own_forward_pass_for_text(tiny_policy, tiny_model, pictures):
    policy = tiny_policy("qwen2")
    batch = mixed_batch(policy, pictures)
    model = AutoModelForCausalLM.from_pretrained(tiny_model("qwen2"), attn_implementation="eager").eval()
    for row, prompt in enumerate(batch.prompt_of_row.tolist()):
        ids = batch.response_ids[row, : batch.response_lengths[row]].tolist()
        if not ids:
            continue
        inputs = {"input_ids": torch.tensor([batch.prompts[prompt].token_ids])}
        oracle = hf_logprobs(model, inputs, ids, policy.prompts.banned_token_ids)
        for path in ("prefix", "plain"):
            found = policy(batch, temperature=TEMPERATURE, path=path).logprobs[row, : len(ids)]
            assert (found - oracle * batch.response_mask[row, : len(ids)]).abs().max() < LOGPROB_TOLERANCE


@pytest.mark.parametrize("path", ["prefix", "plain"])
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_row_does_not_depend_on_what_it_is_batched_with(tiny_policy, pictures, family, path):
    """V16: text and image rows in one batch, with the axes of positions that each family has."""
    policy = tiny_policy(family, trainable=False)
    batch = mixed_batch(policy, pictures)
    together = policy(batch, path=path).logprobs
    for row in range(batch.num_rows):
        alone = batch.select_rows(torch.tensor([row]))
        found = policy(alone, path=path).logprobs[0]
        assert (found - together[row, : len(found)]).abs().max() < LOGPROB_TOLERANCE if len(found) else True


def test_a_long_group_split_by_responses_adds_up_to_the_whole(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl")
    batch = mixed_batch(policy, pictures)
    whole = gradients_of(policy.hf, policy(batch).logprobs.sum())
    policy.zero_grad()
    for rows in torch.arange(batch.num_rows).split(3):
        policy(batch.select_rows(rows)).logprobs.sum().backward()
    parts = {name: weight.grad for name, weight in policy.hf.named_parameters() if weight.grad is not None}
    assert_same_gradients(parts, whole)


@pytest.mark.parametrize("path", ["prefix", "plain"])
def test_bfloat16_stays_near_float32_and_keeps_float32_weights_and_gradients(tiny_policy, pictures, path):
    exact, rough = tiny_policy("qwen2_5_vl"), tiny_policy("qwen2_5_vl", dtype="bfloat16")
    batch = mixed_batch(exact, pictures)
    expected = exact(batch, path=path).logprobs
    found = rough(batch, path=path).logprobs
    assert found.dtype == torch.float32
    assert 0 < (found - expected).abs().max() < 0.05
    gradients = gradients_of(rough.hf, found.sum())
    assert all(gradient.dtype == torch.float32 for gradient in gradients.values())
    assert all(weight.dtype == torch.float32 for weight in rough.hf.parameters())
