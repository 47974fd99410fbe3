"""The actor on a tiny real Qwen2.5-VL: gradients for any budget and path, steps that must not happen, its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from mmrl.algorithms import build_algorithm
from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config.algorithm import DrGrpoConfig, GrpoConfig, KlConfig
from mmrl.config.run import ImageConfig, ModelConfig, OptimConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.gradients import GradientAccumulator
from mmrl.engines.micro_batches import num_real_tokens, plan_micro_batches
from mmrl.engines.reference import Reference
from mmrl.errors import RunFailedError
from mmrl.models.policy import ForwardPath, PolicyModel, load_policy, save_policy
from mmrl.models.tiny import build_tiny
from mmrl.types import ImagePart, Message, Rollout, Sample, TextPart

TEMPERATURE = 0.8
LIMIT = 12
RESPONSE_LENGTHS = ((5, 0, LIMIT), (3, 7, 7, 1), (LIMIT, 2), (4, 4, 9), (6, 1), (8, 3, 2))


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[bool, Path]:
    """Model folders, by whether the embeddings are tied."""
    return {
        tied: build_tiny("qwen2_5_vl", tmp_path_factory.mktemp("model"), seed=1, tie_embeddings=tied)
        for tied in (False, True)
    }


def load(folder: Path, store: ImageStore, **options) -> PolicyModel:
    config = ModelConfig.model_validate({"path": str(folder), "dtype": "float32", "device": "cpu", **options})
    return load_policy(config, ImageConfig(), store=store)


@pytest.fixture
def policy(folders, store) -> PolicyModel:
    return load(folders[False], store)


@pytest.fixture(scope="module")
def samples(store) -> list[Sample]:
    """Prompts with no, one and two images, of unequal lengths."""
    random = torch.Generator().manual_seed(0)

    def image(width: int, height: int) -> ImagePart:
        pixels = torch.randint(0, 256, (height, width, 3), generator=random, dtype=torch.uint8)
        return ImagePart(store.add(Image.fromarray(pixels.numpy())))

    contents = [
        (TextPart("What is two and two?"),),
        (image(56, 56), TextPart("Which digit is this?")),
        (image(56, 84), image(112, 56), TextPart("What is the sum of the two digits in these images?")),
        (TextPart("Say one."),),
        (image(84, 84), TextPart("Odd or even?")),
        (TextPart("Count from one to nine and say which of them are odd."),),
    ]
    return [Sample(id=str(index), messages=(Message("user", content),)) for index, content in enumerate(contents)]


def make_batch(policy: PolicyModel, samples: list[Sample]) -> GroupBatch:
    """Random responses with a tool answer in the longer ones, random advantages, and logprobs near the policy's."""
    random = torch.Generator().manual_seed(3)
    allowed = torch.tensor([i for i in range(256) if i not in set(policy.prompts.banned_token_ids)])
    responses = [
        [rollout(sample, index, length, allowed, random) for index, length in enumerate(lengths)]
        for sample, lengths in zip(samples, RESPONSE_LENGTHS, strict=True)
    ]
    batch = build_group_batch([policy.prompts.prepare(sample) for sample in samples], responses)
    with torch.no_grad():
        logprobs = policy(batch, temperature=TEMPERATURE).logprobs
    mask = batch.response_mask

    def near(scale: float) -> Tensor:
        return logprobs + scale * torch.randn(mask.shape, generator=random) * mask

    advantages = torch.randn(batch.num_rows, 1, generator=random) * mask
    return batch.with_(old_logprobs=near(0.2), reference_logprobs=near(0.3), advantages=advantages)


def rollout(sample: Sample, index: int, length: int, allowed: Tensor, random: torch.Generator) -> Rollout:
    ids = allowed[torch.randint(0, len(allowed), (length,), generator=random)].tolist()
    mask = [0 if length >= 7 and column in (2, 3) else 1 for column in range(length)]
    return Rollout(
        sample_id=sample.id,
        index=index,
        token_ids=tuple(ids),
        response_mask=tuple(mask),
        logprobs=(0.0,) * length,
        finish_reason="length" if length == LIMIT else "stop",
        text="",
        policy_version=0,
        seed=0,
    )


@pytest.fixture
def batch(policy, samples) -> GroupBatch:
    return make_batch(policy, samples)


def budget_for(batch: GroupBatch, num_micro_batches: int, path: ForwardPath = "prefix") -> int:
    """The smallest budget that gives so many micro-batches."""
    fewest_tokens = num_real_tokens(batch, path=path) // num_micro_batches
    return next(
        budget
        for budget in range(fewest_tokens, 3000)
        if len(plan_micro_batches(batch, budget, path=path)) == num_micro_batches
    )


ALGORITHMS = [
    GrpoConfig(kl=KlConfig(coef=0.05, estimator="k3"), entropy_coef=0.01),
    GrpoConfig(loss_aggregation="token_mean", clip_high=0.28),
    DrGrpoConfig(kl=KlConfig(coef=0.05, estimator="k2")),
]


def gradients_of(policy: PolicyModel, batch: GroupBatch, config, *, budget: int, path: ForwardPath = "prefix"):
    """Gradient of each parameter and the metrics, of the algorithm's objective over the batch."""
    objective = build_algorithm(config).objective(batch, response_limit=LIMIT, first_update=False)
    train = TrainConfig.model_validate({"micro_batch_tokens": budget, "path": path})
    policy.zero_grad()
    done = GradientAccumulator(
        policy,
        train,
        lambda part, goal: policy(part, temperature=TEMPERATURE, path=path, with_entropy=goal.needs_entropy),
    ).accumulate(batch, objective)
    gradients = {name: weight.grad.clone() for name, weight in policy.named_parameters() if weight.grad is not None}
    return gradients, done


def relative_difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys()
    difference = sum((found[name] - gradient).double().square().sum() for name, gradient in expected.items())
    return float((difference / sum(gradient.double().square().sum() for gradient in expected.values())).sqrt())


@pytest.mark.parametrize("config", ALGORITHMS, ids=lambda config: f"{config.type}-{config.loss_aggregation}")
def test_gradients_and_metrics_are_the_same_for_one_two_and_seven_micro_batches(policy, batch, config):
    whole, reference = gradients_of(policy, batch, config, budget=budget_for(batch, 1))
    assert reference.metrics["actor/clip_fraction_low"] > 0
    assert reference.metrics["actor/clip_fraction_high"] > 0
    for number in (2, 7):
        gradients, done = gradients_of(policy, batch, config, budget=budget_for(batch, number))
        assert done.num_micro_batches == number
        assert relative_difference(gradients, whole) < 1e-5
        assert done.metrics == pytest.approx(reference.metrics, rel=1e-4, abs=1e-6)


def test_prefix_and_plain_path_give_the_same_logprobs_and_gradients(policy, batch):
    prefix, _ = gradients_of(policy, batch, ALGORITHMS[0], budget=budget_for(batch, 2))
    plain, done = gradients_of(policy, batch, ALGORITHMS[0], budget=budget_for(batch, 7, "plain"), path="plain")
    assert done.num_micro_batches == 7
    assert relative_difference(plain, prefix) < 1e-4
    both = [
        actor_of(policy, micro_batch_tokens=budget, path=path).logprobs(batch, with_entropy=True)
        for budget, path in ((200, "prefix"), (150, "plain"))
    ]
    torch.testing.assert_close(both[0].logprobs, both[1].logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(both[0].entropy, both[1].entropy, rtol=0, atol=1e-5)


def actor_of(policy: PolicyModel, *, lr: float = 1e-3, **train) -> HfActor:
    return HfActor(
        policy,
        OptimConfig(lr=lr),
        TrainConfig.model_validate(train),
        temperature=TEMPERATURE,
        total_steps=100,
    )


def test_flops_and_tokens_of_a_step_do_not_depend_on_the_budget(folders, store, samples):
    found = []
    for budget in (10_000, 200):
        policy = load(folders[False], store)
        batch = make_batch(policy, samples)
        found.append(actor_of(policy, micro_batch_tokens=budget).train_step(batch, objective_of(batch)))
    assert found[0]["num_micro_batches"] < found[1]["num_micro_batches"]
    for name in ("flops", "num_tokens", "lr"):
        assert found[0][name] == found[1][name] > 0
    assert found[1]["padding_share"] < found[0]["padding_share"] < 1


def objective_of(batch: GroupBatch):
    return build_algorithm(ALGORITHMS[0]).objective(batch, response_limit=LIMIT, first_update=False)


def test_logprobs_in_micro_batches_equal_those_of_one_pass_in_the_rows_own_order(policy, batch):
    with torch.no_grad():
        expected = policy(batch, temperature=TEMPERATURE).logprobs
    found = actor_of(policy, micro_batch_tokens=budget_for(batch, 7)).logprobs(batch).logprobs
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found[batch.response_mask == 0] == 0).all()
    assert (found[batch.response_mask == 1] < 0).all()


def test_steps_raise_the_advantage_weighted_likelihood(policy, batch):
    actor = actor_of(policy, micro_batch_tokens=200)
    before = (actor.logprobs(batch).logprobs * batch.advantages).sum()
    batch = batch.with_(old_logprobs=actor.logprobs(batch).logprobs)
    for _ in range(3):
        metrics = actor.train_step(batch, objective_of(batch))
    assert (actor.logprobs(batch).logprobs * batch.advantages).sum() > before + 1
    assert metrics["grad_norm"] > 0
    assert metrics["flops"] > 0


def bits(policy: PolicyModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in policy.state_dict().items()}


def assert_bits_unchanged(policy: PolicyModel, before: dict[str, Tensor]) -> None:
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())


def test_a_step_with_nan_leaves_the_weights_bitwise_unchanged(policy, batch):
    actor = actor_of(policy, micro_batch_tokens=200)
    actor.train_step(batch, objective_of(batch))
    before = bits(policy)
    advantages = batch.advantages.clone()
    advantages[4, 0] = torch.nan
    broken = batch.with_(advantages=advantages)
    with pytest.raises(RunFailedError, match=r"step 2, update 2: loss is nan in micro-batch \d of \d; .*: advantages"):
        actor.train_step(broken, objective_of(broken))
    assert_bits_unchanged(policy, before)


def test_weights_that_are_not_finite_are_reported_and_left(policy, batch):
    next(iter(policy.parameters())).data.view(-1)[0] = torch.nan
    before = bits(policy)
    with pytest.raises(RunFailedError, match="not finite already: logprobs of the actor"):
        actor_of(policy).train_step(batch, objective_of(batch))
    assert all(torch.equal(tensor.isnan(), before[name].isnan()) for name, tensor in policy.state_dict().items())


def test_every_response_masked_skips_the_step_and_keeps_the_weights(policy, batch):
    """Case T13: all responses were cut and cut ones are masked."""
    zeros = torch.zeros_like(batch.response_mask)
    masked = batch.with_(response_mask=zeros, advantages=zeros)
    before = bits(policy)
    metrics = actor_of(policy).train_step(masked, objective_of(masked))
    assert metrics["skipped_steps"] == 1
    assert all(value == value for value in metrics.values())
    assert_bits_unchanged(policy, before)


def test_empty_responses_have_finite_logprobs_and_change_nothing_of_the_others(policy, samples, batch):
    """Case T12: a response that ends at once has nothing above the line and counts in nothing below it."""
    empty = torch.nonzero(batch.response_lengths == 0).flatten()
    assert len(empty) == 1
    others = batch.select_rows(torch.nonzero(batch.response_lengths > 0).flatten())
    with_empty, done = gradients_of(policy, batch, ALGORITHMS[0], budget=200)
    without, expected = gradients_of(policy, others, ALGORITHMS[0], budget=200)
    assert relative_difference(with_empty, without) < 1e-5
    assert done.metrics == pytest.approx(expected.metrics, rel=1e-4, abs=1e-6)
    only_empty = batch.select_rows(empty)
    assert actor_of(policy).logprobs(only_empty).logprobs.shape == (1, 0)
    assert actor_of(policy).train_step(only_empty, objective_of(only_empty))["skipped_steps"] == 1


def test_frozen_vision_is_not_moved_and_the_rest_has_the_same_gradient(folders, store, samples):
    free, frozen = load(folders[False], store), load(folders[False], store, freeze=["vision", "projector"])
    batch = make_batch(free, samples)
    expected, _ = gradients_of(free, batch, ALGORITHMS[0], budget=200)
    gradients, _ = gradients_of(frozen, batch, ALGORITHMS[0], budget=200)
    assert not any("visual" in name for name in gradients)
    assert relative_difference(gradients, {name: expected[name] for name in gradients}) < 1e-5
    before = bits(frozen)
    actor_of(frozen).train_step(batch, objective_of(batch))
    moved = {name for name, tensor in frozen.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved
    assert not any("visual" in name for name in moved)


def test_bfloat16_steps_near_float32(folders, store, samples):
    full, half = load(folders[False], store), load(folders[False], store, dtype="bfloat16")
    batch = make_batch(full, samples)
    expected, _ = gradients_of(full, batch, ALGORITHMS[0], budget=200)
    gradients, _ = gradients_of(half, batch, ALGORITHMS[0], budget=200)
    assert relative_difference({k: g.float() for k, g in gradients.items()}, expected) < 0.1
    before = bits(half)
    actor_of(half).train_step(batch, objective_of(batch))
    assert any(not torch.equal(tensor, before[name]) for name, tensor in half.state_dict().items())


@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_named_and_valued_as_in_a_saved_checkpoint(folders, store, samples, tmp_path, tied):
    policy = load(folders[tied], store)
    actor = actor_of(policy, micro_batch_tokens=200)
    batch = make_batch(policy, samples)
    actor.train_step(batch, objective_of(batch))
    save_policy(policy, tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    streamed = dict(actor.weights())
    assert streamed.keys() == saved.keys()
    assert ("lm_head.weight" in streamed) == (not tied)
    for name, tensor in saved.items():
        torch.testing.assert_close(streamed[name], tensor, rtol=0, atol=0)


def test_a_reference_keeps_the_first_weights(policy, batch):
    reference = Reference.copy_of(policy, TrainConfig(micro_batch_tokens=200), temperature=TEMPERATURE)
    actor = actor_of(policy, micro_batch_tokens=200)
    first = actor.logprobs(batch).logprobs
    actor.train_step(batch, objective_of(batch))
    torch.testing.assert_close(reference.logprobs(batch), first, rtol=0, atol=1e-6)
    assert not torch.allclose(actor.logprobs(batch).logprobs, first, atol=1e-3)


def test_a_resumed_actor_takes_the_same_step(folders, store, samples, tmp_path):
    policy = load(folders[True], store)
    actor = actor_of(policy, micro_batch_tokens=200)
    batch = make_batch(policy, samples)
    actor.train_step(batch, objective_of(batch))
    save_policy(policy, tmp_path / "model")
    torch.save(actor.state_dict(), tmp_path / "trainer.pt")
    resumed = actor_of(load(tmp_path / "model", store), micro_batch_tokens=200)
    resumed.load_state_dict(torch.load(tmp_path / "trainer.pt", weights_only=True))
    for one in (actor, resumed):
        one.train_step(batch, objective_of(batch))
    for name, tensor in resumed.policy.state_dict().items():
        assert torch.equal(tensor, actor.policy.state_dict()[name]), name


def test_groups_over_the_budget_are_divided_and_agree(policy, samples):
    batch = make_batch(policy, samples)
    longest_prompt = max(len(prompt) for prompt in batch.prompts)
    plan = plan_micro_batches(batch, longest_prompt + LIMIT)
    assert len(plan) > len(batch.prompts)
    whole, _ = gradients_of(policy, batch, ALGORITHMS[0], budget=10_000)
    divided, _ = gradients_of(policy, batch, ALGORITHMS[0], budget=longest_prompt + LIMIT)
    assert relative_difference(divided, whole) < 1e-5
