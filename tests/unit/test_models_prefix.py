"""Extending, expanding, selecting: a prefix gives what one forward pass over all of its tokens gives."""

import pytest
import torch
from models_builders import mixed_samples

TOLERANCE = 2e-6


@pytest.fixture(params=["qwen2_5_vl", "qwen3_vl", "qwen2"])
def policy(request, tiny_policy):
    return tiny_policy(request.param, trainable=False)


@pytest.fixture
def prompts(policy, pictures):
    return [policy.prompts.prepare(one) for one in mixed_samples(pictures, sees_images=policy.family.sees_images)]


def tokens(rows, length, seed=0):
    return torch.randint(0, 400, (rows, length), generator=torch.Generator().manual_seed(seed))


def gap(first, second):
    return float((first - second).abs().max())


@torch.no_grad()
def test_prompts_of_unequal_length_are_each_what_they_are_alone(policy, prompts):
    together = policy.prefill(prompts)
    assert together.has_gaps
    for index, prompt in enumerate(prompts):
        alone = policy.prefill([prompt])
        assert not alone.has_gaps
        assert gap(together.last_hidden[index], alone.last_hidden[0]) < TOLERANCE
        assert together.next_positions[index] == alone.next_positions[0]
        assert together.attention_mask[index].sum() == len(prompt)


@torch.no_grad()
def test_of_a_prompt_the_last_layer_computes_its_last_token_only(policy, prompts):
    layers, lengths = policy.family.language_model(policy.hf).layers, torch.tensor([len(prompt) for prompt in prompts])
    seen = []
    for layer in (layers[-2], layers[-1]):
        layer.mlp.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0].shape[1]))
    prefix = policy.prefill(prompts)
    assert seen == [max(lengths), 1]
    whole = policy._run_rows(policy._build_rows(prompts, share_images=True), cache=None)
    assert seen[2:] == [max(lengths)] * 2
    assert gap(prefix.last_hidden, whole[torch.arange(len(prompts)), lengths - 1]) < TOLERANCE


@torch.no_grad()
def test_token_by_token_is_what_all_at_once_is(policy, prompts):
    ids = tokens(len(prompts), 5)
    at_once, after = policy.extend(policy.prefill(prompts), ids)
    prefix = policy.prefill(prompts)
    for step in range(5):
        hidden, prefix = policy.extend(prefix, ids[:, step : step + 1])
        assert gap(hidden[:, 0], at_once[:, step]) < TOLERANCE
    assert torch.equal(prefix.next_positions, after.next_positions)
    assert torch.equal(prefix.attention_mask, after.attention_mask)
    assert gap(prefix.last_hidden, after.last_hidden) < TOLERANCE


@torch.no_grad()
def test_selected_rows_go_on_as_they_would_have(policy, prompts):
    ids = tokens(2 * len(prompts), 4)
    prefix = policy.prefill(prompts).expand(torch.arange(len(prompts)).repeat_interleave(2))
    expected, _ = policy.extend(prefix, ids)
    _, begun = policy.extend(prefix, ids[:, :2])
    kept = torch.tensor([0, 2, 3])
    found, _ = policy.extend(begun.select(kept), ids[kept, 2:])
    assert gap(found, expected[kept, 2:]) < TOLERANCE


@torch.no_grad()
def test_expanding_repeats_rows_in_any_pattern(policy, prompts):
    prefix = policy.prefill(prompts)
    uneven = torch.tensor([0, 0, 1, 2])
    ids = tokens(4, 3)
    found, _ = policy.extend(prefix.expand(uneven), ids)
    for row, prompt in enumerate(uneven.tolist()):
        alone, _ = policy.extend(policy.prefill([prompts[prompt]]), ids[row : row + 1])
        assert gap(found[row], alone[0]) < TOLERANCE


@torch.no_grad()
def test_extensions_of_unequal_length_leave_gaps_that_do_not_count(policy, prompts):
    """A second turn over rows whose first turns had 3, 0, 1 … tokens."""
    prefix = policy.prefill(prompts)
    first, second = tokens(len(prompts), 3), tokens(len(prompts), 2, seed=1)
    lengths = torch.tensor([3, 0, 1, 2][: len(prompts)])
    _, longer = policy.extend(prefix, first, lengths)
    found, _ = policy.extend(longer, second)
    assert torch.equal(longer.last_hidden[1], prefix.last_hidden[1])
    for row, length in enumerate(lengths.tolist()):
        row_ids = torch.cat([first[row, :length], second[row]])[None]
        alone, _ = policy.extend(policy.prefill([prompts[row]]), row_ids)
        assert gap(found[row], alone[0, length:]) < TOLERANCE


@torch.no_grad()
def test_a_prefix_may_be_extended_twice(policy, prompts):
    prefix = policy.prefill(prompts)
    ids = tokens(len(prompts), 3)
    first, _ = policy.extend(prefix, ids)
    policy.extend(prefix, ids + 1)
    again, _ = policy.extend(prefix, ids)
    assert torch.equal(first, again)
    assert prefix.length == max(len(prompt) for prompt in prompts)


@torch.no_grad()
def test_extending_by_nothing_is_the_same_prefix(policy, prompts):
    prefix = policy.prefill(prompts)
    hidden, same = policy.extend(prefix, tokens(len(prompts), 0))
    assert hidden.shape == (len(prompts), 0, prefix.last_hidden.shape[1])
    assert same is prefix
