import copy

import pytest
import torch
from models_builders import mixed_batch, mixed_samples, response, sample, user

from mmrl.batch import build_group_batch


@pytest.fixture
def policy(tiny_policy):
    return tiny_policy("qwen2_5_vl")


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_sampling_token_by_token_has_the_logprobs_of_the_forward_pass(policy, pictures, temperature):
    prompts = [policy.prompts.prepare(one) for one in mixed_samples(pictures)]
    generator = torch.Generator().manual_seed(0)
    prefix = policy.prefill(prompts).expand(torch.arange(len(prompts)).repeat_interleave(2))
    log_probs = policy.log_probs_of(prefix.last_hidden, temperature)
    ids, chosen = [], []
    for _ in range(6):
        token = torch.multinomial(log_probs.exp(), 1, generator=generator)
        ids.append(token)
        chosen.append(log_probs.gather(-1, token))
        hidden, prefix = policy.extend(prefix, token)
        log_probs = policy.log_probs_of(hidden[:, -1], temperature)
    rows = torch.cat(ids, dim=1).tolist()
    groups = [[response(first), response(second)] for first, second in zip(rows[::2], rows[1::2], strict=True)]
    batch = build_group_batch(prompts, groups)
    for path in ("prefix", "plain"):
        stats = policy(batch, temperature=temperature, path=path)
        assert (stats.logprobs - torch.cat(chosen, dim=1)).abs().max() < 1e-5


@torch.no_grad()
def test_no_banned_id_has_any_probability(policy, pictures):
    prefix = policy.prefill([policy.prompts.prepare(one) for one in mixed_samples(pictures)])
    log_probs = policy.log_probs_of(prefix.last_hidden, 1.0)
    assert (log_probs[:, policy.banned_token_ids] == -torch.inf).all()
    assert torch.allclose(log_probs.exp().sum(-1), torch.ones(len(log_probs)))
    assert torch.isfinite(log_probs[:, sorted(policy.end_token_ids)]).all()


def test_a_vision_id_in_a_response_is_read_as_a_token_and_makes_no_slot(policy, pictures):
    """V13: the count of image features is that of the prompt, whatever a response holds."""
    prompt = policy.prompts.prepare(sample(user(pictures[0], "Which digit?")))
    ids = [30, policy.prompts.image_token_id, 31]
    batch = build_group_batch([prompt], [[response(ids, [1, 0, 1])]])
    prefix, plain = (policy(batch, path=path).logprobs for path in ("prefix", "plain"))
    assert torch.allclose(prefix, plain, atol=1e-5)
    assert prefix[0, 1] == 0
    assert torch.isfinite(prefix).all()


def test_prompts_of_300_and_40_tokens_have_the_logprobs_of_batches_of_one(policy):
    """V15."""
    long, short = (policy.prompts.prepare(sample(user("12 + 34 " * count))) for count in (36, 3))
    assert len(long) > 7 * len(short)
    batch = build_group_batch([long, short], [[response([40, 41, 42])], [response([50])]])
    for path in ("prefix", "plain"):
        together = policy(batch, path=path).logprobs
        for row in range(2):
            alone = policy(batch.select_rows(torch.tensor([row])), path=path).logprobs
            assert torch.allclose(together[row, : alone.shape[1]], alone[0], atol=1e-5)


@pytest.mark.parametrize("path", ["prefix", "plain"])
def test_an_empty_batch_of_responses_gives_zeros(policy, pictures, path):
    prompts = [policy.prompts.prepare(one) for one in mixed_samples(pictures)[:2]]
    batch = build_group_batch(prompts, [[response([])], [response([7, 8], [0, 0])]])
    stats = policy(batch, path=path, with_entropy=True)
    assert torch.equal(stats.logprobs, torch.zeros(2, 2))
    assert torch.equal(stats.entropy, torch.zeros(2, 2))


def test_a_row_of_a_single_token_needs_no_extension(policy, pictures):
    prompts = [policy.prompts.prepare(one) for one in mixed_samples(pictures)]
    batch = build_group_batch(prompts, [[response([7]), response([9])] for _ in prompts])
    prefix, plain = (policy(batch, path=path).logprobs for path in ("prefix", "plain"))
    assert torch.allclose(prefix, plain, atol=1e-5)


def test_an_image_is_encoded_once_however_often_it_occurs(policy, pictures, monkeypatch):
    seen = []
    encode = type(policy.family).encode_images
    monkeypatch.setattr(
        type(policy.family), "encode_images", lambda self, hf, images: seen.append(images) or encode(self, hf, images)
    )
    one = policy.prompts.prepare(sample(user(pictures[0], "and", pictures[1], "and", pictures[0])))
    other = policy.prompts.prepare(sample(user(pictures[1], "?")))
    batch = build_group_batch([one, other], [[response([5, 6])] * 3, [response([7])] * 2])
    shared = policy(batch).logprobs
    plain = policy(batch, path="plain").logprobs
    assert [image.sha256 for image in seen[0]] == [pictures[0].sha256, pictures[1].sha256]
    assert len(seen[1]) == 3 * 3 + 2
    assert torch.allclose(shared, plain, atol=1e-5)


def test_the_policy_never_leaves_evaluation_mode(policy):
    policy.train()
    assert not any(module.training for module in policy.modules())


def test_a_copy_that_shares_adapter_and_processor_has_weights_of_its_own(policy, pictures):
    batch = mixed_batch(policy, pictures)
    before = policy(batch).logprobs
    shared = {id(item): item for item in (policy.prompts, policy.family)}
    reference = copy.deepcopy(policy, shared)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(1.1)
    assert torch.equal(reference(batch).logprobs, before)
    assert not torch.allclose(policy(batch).logprobs, before)


def test_bfloat16_is_autocast_over_float32_weights(tiny_policy):
    policy = tiny_policy("qwen2_5_vl", dtype="bfloat16")
    assert policy.dtype == torch.bfloat16
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}
    prefix = policy.prefill([policy.prompts.prepare(sample(user("12 + 34?")))])
    assert {layer.keys.dtype for layer in prefix.cache.layers} == {torch.bfloat16}
