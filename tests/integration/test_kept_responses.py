"""The update that takes what linear maps and attention made of responses in sampling has the gradient of one that
computes it."""

from __future__ import annotations

import pytest
import torch
from kept_steps import Step, relative_gap
from models_builders import VISION_FAMILIES

from mmrl.config.run import TrainConfig
from mmrl.engines.base import SamplingParams
from mmrl.models.fast.modules import FastLinear
from mmrl.models.kept_responses import Recording

FAMILIES = [*VISION_FAMILIES, "qwen2"]


def train(*, megabytes=64, tokens=300):
    return TrainConfig(micro_batch_tokens=tokens, kept_responses_mb=megabytes)


@pytest.fixture
def products(monkeypatch):
    """Tokens that each linear map of the language model's layers was multiplied by with gradients."""
    from mmrl.models.fast import functions

    counted = []
    plain = functions._Linear.forward

    def counting(ctx, x, weight, bias, known):
        counted.append((x.shape[:-1].numel(), known is not None))
        return plain(ctx, x, weight, bias, known)

    monkeypatch.setattr(functions._Linear, "forward", staticmethod(counting))
    return counted


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_responses_forwarded_again(tiny_policy, pictures, family):
    plain = Step(tiny_policy(family), pictures, train=train(megabytes=0)).gradients(for_update=True)
    step = Step(tiny_policy(family), pictures, train=train())
    batch, _ = step.sample()
    assert len(step.policy.kept_responses.find(batch)[0].rows) == batch.num_rows - 4
    assert relative_gap(step.gradients(for_update=True), plain) < 2e-6


def test_linear_maps_of_kept_responses_compute_no_product_forward(tiny_policy, pictures, products):
    policy = tiny_policy("qwen2_5_vl")
    policy.end_token_ids = frozenset()
    step = Step(policy, pictures, train=train())
    batch, objective = step.sample()
    (kept,) = policy.kept_responses.find(batch)
    products.clear()
    assert step.actor.train_step(batch, objective)["responses_kept"] == len(kept.rows) / batch.num_rows
    num_maps = 6 * len(policy.family.language_model(policy.hf).layers)  # all but `down`, which is part of the gated map
    assert sum(tokens for tokens, known in products if known) == num_maps * len(kept.rows) * 7
    assert any(not known for _, known in products), "the last group is forwarded again"


def test_attention_of_kept_responses_is_not_computed_again(tiny_policy, pictures, monkeypatch):
    from mmrl.models import attention

    policy = tiny_policy("qwen2_5_vl")
    policy.end_token_ids = frozenset()
    step = Step(policy, pictures, train=train())
    batch, objective = step.sample()
    (kept,) = policy.kept_responses.find(batch)
    queries, plain = [], attention.attention

    def counting(query, *arguments, **named):
        queries.append(query.shape[0] * query.shape[2])
        return plain(query, *arguments, **named)

    monkeypatch.setattr(attention, "attention", counting)
    step.actor.train_step(batch, objective)
    num_layers = len(policy.family.language_model(policy.hf).layers)
    assert sum(queries) == num_layers * (batch.num_rows - len(kept.rows)) * 7


def test_products_that_were_kept_do_not_count_again(tiny_policy, pictures):
    counts = []
    for megabytes in (0, 64):
        step = Step(tiny_policy("qwen2_5_vl"), pictures, train=train(megabytes=megabytes))
        batch, objective = step.sample()
        kept = [row for part in step.policy.kept_responses.find(batch) for row in part.rows.tolist()]
        counts.append(step.actor.train_step(batch, objective)["flops"])
    num_inputs = [int(batch.response_lengths[row]) - 1 for row in kept]
    prompts = [len(batch.prompts[int(batch.prompt_of_row[row])]) for row in kept]
    products = 2 * sum(num_inputs) * sum(module.weight.numel() for module in language_maps(step.policy))
    seen = sum(own * (prompt + own) for own, prompt in zip(num_inputs, prompts, strict=True))
    attended = sum(4 * seen * attention.q_proj.weight.shape[0] for attention in attentions(step.policy))
    assert counts[0] - counts[1] == pytest.approx(products + attended)


def test_rows_that_end_early_and_leave_the_batch_are_kept_whole(tiny_policy, pictures):
    """Lengths that differ: padding behind a kept row holds no number that was never written."""
    params = SamplingParams(max_response_tokens=24)
    policies = [tiny_policy("qwen2_5_vl") for _ in range(2)]
    ends = frozenset(range(5, 60))
    for policy in policies:
        policy.end_token_ids = ends
    steps = [
        Step(policy, pictures, train=train(megabytes=megabytes), params=params)
        for policy, megabytes in zip(policies, (0, 64), strict=True)
    ]
    batch, _ = steps[1].sample()
    assert len(set(batch.response_lengths.tolist())) > 3
    poison(steps[1].policy)
    plain, kept = (step.gradients(for_update=True) for step in steps)
    assert all(gradient.isfinite().all() for gradient in kept.values())
    assert relative_gap(kept, plain) < 2e-6


def test_a_budget_keeps_whole_groups_from_the_first_on(tiny_policy, pictures):
    plain = Step(tiny_policy("qwen2_5_vl"), pictures, train=train(megabytes=0)).gradients(for_update=True)
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=train(tokens=10_000))
    width = sum(module.weight.shape[0] for module in language_maps(step.policy))
    for attention in attentions(step.policy):
        heads = attention.q_proj.weight.shape[0] // attention.head_dim
        width += heads * attention.head_dim + heads
    group_bytes = 4 * 7 * width * 4
    step.policy.kept_responses.max_bytes = 2 * group_bytes + 1
    batch, _ = step.sample()
    (kept,) = step.policy.kept_responses.find(batch)
    assert kept.rows.tolist() == list(range(8))
    assert relative_gap(step.gradients(for_update=True), plain) < 2e-6


def test_batches_sampled_one_after_another_are_found_in_one_update(tiny_policy, pictures):
    plain = Step(tiny_policy("qwen2_5_vl"), pictures, train=train(megabytes=0)).gradients(for_update=True)
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=train(tokens=10_000), max_batch_rows=8)
    batch, _ = step.sample()
    assert len(step.policy.kept_responses.find(batch)) > 1
    assert relative_gap(step.gradients(for_update=True), plain) < 2e-6


def test_rows_in_another_order_and_with_rows_between_them_are_found(tiny_policy, pictures):
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=train())
    batch, _ = step.sample()
    expected = tiny_policy("qwen2_5_vl")(batch).logprobs
    order = torch.tensor([9, 2, 0, batch.num_rows - 1])
    found = step.policy(batch.select_rows(order)).logprobs
    assert torch.allclose(found, expected[order][:, : found.shape[1]], atol=2e-6)


def test_nothing_is_kept_once_a_weight_was_written_to(tiny_policy, pictures):
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=train())
    batch, _ = step.sample()
    with torch.no_grad():
        next(step.policy.hf.parameters()).add_(1e-3)
    assert step.policy.kept_responses.find(batch) == []


@pytest.mark.parametrize(
    "settings", [{"kept_responses_mb": 0}, {"gradient_checkpointing": True}, {"path": "plain"}], ids=str
)
def test_other_ways_of_training_keep_nothing(tiny_policy, pictures, settings):
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=TrainConfig(micro_batch_tokens=300, **settings))
    batch, objective = step.sample()
    assert step.policy.kept_responses.find(batch) == []
    assert step.actor.train_step(batch, objective)["responses_kept"] == 0


def test_half_precision_keeps_nothing(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl")
    policy.dtype = torch.bfloat16
    step = Step(policy, pictures, train=train())
    batch, _ = step.sample()
    assert step.policy.kept_responses.find(batch) == []


def test_behind_a_row_outputs_are_zero_and_sums_infinite():
    module = torch.nn.Identity()
    recording = Recording({(module, "output"): torch.ones(1, 3, 2), (module, "log_sums"): torch.ones(1, 3, 1)})
    recording.num_positions = 3
    recording.end([2])
    assert recording.buffers[module, "output"][0, :, 0].tolist() == [1, 1, 0]
    assert recording.buffers[module, "log_sums"][0, :, 0].tolist() == [1, 1, torch.inf]


def language_maps(policy):
    layers = policy.family.language_model(policy.hf).layers
    return [module for layer in layers for module in layer.modules() if isinstance(module, FastLinear)]


def attentions(policy):
    return [layer.self_attn for layer in policy.family.language_model(policy.hf).layers]


def poison(policy):
    """What the next recording writes over is no number at first."""
    policy.kept_responses.drop()
    for buffer in policy.kept_responses._spare.values():
        buffer.fill_(torch.nan)
