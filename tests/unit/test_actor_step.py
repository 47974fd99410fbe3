from __future__ import annotations

import copy
import io
import logging

import pytest
import torch
from actor_fakes import FakePolicy, WeightedLogprobs, copy_of_weights, make_batch, masked_out

from mmrl.algorithms import build_algorithm
from mmrl.batch import LossOutput
from mmrl.config.algorithm import GrpoConfig
from mmrl.config.run import OptimConfig, TrainConfig
from mmrl.engines.actor import HfActor
from mmrl.engines.reference import Reference
from mmrl.errors import RunFailedError

BATCH = make_batch([3, 9, 5], [[4, 0, 7], [2, 2, 9], [5]], tool_tokens=True)


@pytest.fixture(autouse=True)
def _no_flops_of_a_fake(monkeypatch):
    monkeypatch.setattr("mmrl.engines.actor.step_flops", lambda policy, batch, **_: 1.0)


def make_actor(budget: int = 10_000, *, policy: FakePolicy | None = None, total_steps: int = 10, **options) -> HfActor:
    train = {"steps": total_steps, "micro_batch_tokens": budget, **options.pop("train", {})}
    optim = {"lr": 0.01, **options}
    return HfActor(
        policy or FakePolicy(),
        OptimConfig.model_validate(optim),
        TrainConfig.model_validate(train),
        temperature=0.7,
        total_steps=total_steps,
    )


def assert_unchanged(actor: HfActor, before: dict[str, torch.Tensor]) -> None:
    assert all(torch.equal(tensor, before[name]) for name, tensor in actor.policy.state_dict().items())
    assert all(parameter.grad is None for parameter in actor.policy.parameters())


def test_micro_batches_change_neither_the_step_nor_its_metrics():
    whole, divided = make_actor(10_000), make_actor(16)
    one, many = (actor.train_step(BATCH, WeightedLogprobs(BATCH)) for actor in (whole, divided))
    assert (one["num_micro_batches"], many["num_micro_batches"]) == (
        1,
        5,
    )  # the empty response is alone in one that is left out
    for name in ("logprob", "advantage_max", "grad_norm", "lr", "num_tokens", "skipped_steps"):
        assert many[name] == pytest.approx(one[name], rel=1e-5), name
    for name, weight in whole.policy.state_dict().items():
        torch.testing.assert_close(weight, divided.policy.state_dict()[name], rtol=1e-4, atol=1e-6)


def test_metrics_of_the_real_objective_do_not_depend_on_micro_batches():
    algorithm = build_algorithm(GrpoConfig(entropy_coef=0.01))
    found = []
    for budget in (10_000, 16):
        actor = make_actor(budget)
        batch = BATCH.with_(old_logprobs=actor.logprobs(BATCH).logprobs - 0.3 * BATCH.response_mask)
        found.append(actor.train_step(batch, algorithm.objective(batch, response_limit=9, first_update=False)))
    one, many = found
    assert one.keys() == many.keys()
    for name in one.keys() - {"num_micro_batches", "padding_share", "flops"}:
        assert many[name] == pytest.approx(one[name], rel=1e-4, abs=1e-6), name
    assert one["actor/ratio_mean"] == pytest.approx(torch.tensor(0.3).exp().item(), rel=1e-4)


def test_tokens_are_counted_with_each_prompt_once():
    metrics = make_actor(16).train_step(BATCH, WeightedLogprobs(BATCH))
    assert metrics["num_tokens"] == (3 + 9 + 5) + (4 + 0 + 7 + 2 + 2 + 9 + 5)


def test_padding_share_is_of_the_tokens_that_were_forwarded():
    batch = make_batch([4, 2], [[3], [1]])
    # padded: 2 prompts of 4 and 2 responses of 3 = 14, of which 10 are real
    assert make_actor().train_step(batch, WeightedLogprobs(batch))["padding_share"] == pytest.approx(4 / 14)


def test_logprobs_come_back_in_the_order_of_the_rows():
    actor = make_actor(16)
    with torch.no_grad():
        expected = actor.policy(BATCH, temperature=0.7, with_entropy=True)
    actor.policy.num_rows_of_passes.clear()
    found = actor.logprobs(BATCH, with_entropy=True)
    assert len(actor.policy.num_rows_of_passes) > 1
    torch.testing.assert_close(found.logprobs, expected.logprobs)
    torch.testing.assert_close(found.entropy, expected.entropy)
    assert not found.logprobs.requires_grad
    assert actor.logprobs(BATCH).entropy is None


def test_gradients_are_clipped_over_all_micro_batches_together():
    clipped, free = make_actor(16, grad_clip=1e-3), make_actor(16, grad_clip=1e3)
    norms = [actor.train_step(BATCH, WeightedLogprobs(BATCH))["grad_norm"] for actor in (clipped, free)]
    assert norms[0] == pytest.approx(norms[1])
    assert norms[0] > 1e-3
    moments = [actor.state_dict()["optimizer"]["scale"]["exp_avg"] for actor in (clipped, free)]
    torch.testing.assert_close(moments[0], moments[1] * 1e-3 / norms[0], rtol=1e-3, atol=1e-9)


class Poisoned(WeightedLogprobs):
    """NaN in the loss, or only in its gradient, of micro-batches that hold the prompt of `length`."""

    def __init__(self, batch, *, length: int, only_gradient: bool) -> None:
        super().__init__(batch)
        self.length, self.only_gradient = length, only_gradient

    def __call__(self, micro_batch, stats) -> LossOutput:
        output = super().__call__(micro_batch, stats)
        if all(len(prompt) != self.length for prompt in micro_batch.prompts):
            return output
        zero = (stats.logprobs * 0).sum()
        # sqrt has an infinite slope at 0: the value stays 0 while the gradient becomes NaN
        poison = zero.sqrt() if self.only_gradient else zero * torch.nan
        return LossOutput(output.loss + poison, output.sums, output.maxima)


def test_a_loss_that_is_not_a_number_stops_before_the_weights_move():
    actor = make_actor(16)
    actor.train_step(BATCH, WeightedLogprobs(BATCH))
    before, moments = copy_of_weights(actor.policy), copy.deepcopy(actor.state_dict())
    with pytest.raises(RunFailedError, match=r"step 2, update 2: loss is nan in micro-batch 5 of 5"):
        actor.train_step(BATCH, Poisoned(BATCH, length=5, only_gradient=False))
    assert_unchanged(actor, before)
    torch.testing.assert_close(actor.state_dict(), moments, rtol=0, atol=0)


def test_a_gradient_that_is_not_a_number_stops_before_the_weights_move_and_is_located():
    actor = make_actor(16)
    before = copy_of_weights(actor.policy)
    with pytest.raises(RunFailedError) as caught:
        actor.train_step(BATCH, Poisoned(BATCH, length=3, only_gradient=True))
    assert "step 1, update 1: grad_norm is nan, first not finite in micro-batch 3" in str(caught.value)
    assert "parameter tensors, such as" in str(caught.value)
    assert_unchanged(actor, before)


def test_the_input_that_was_not_finite_is_named():
    batch = BATCH.with_(advantages=BATCH.advantages.clone().fill_(torch.inf) * BATCH.response_mask)
    with pytest.raises(RunFailedError, match="not finite already: advantages"):
        make_actor().train_step(batch, WeightedLogprobs(batch))


def test_a_check_that_raises_before_the_step_leaves_the_weights():
    actor = make_actor(16)
    before = copy_of_weights(actor.policy)
    expected = actor.logprobs(BATCH).logprobs

    def refuse(logprobs: torch.Tensor) -> None:
        torch.testing.assert_close(logprobs, expected)
        assert all(parameter.grad is not None for parameter in actor.policy.parameters())
        raise RunFailedError("sampler and actor disagree")

    with pytest.raises(RunFailedError, match=r"^sampler and actor disagree$"):
        actor.train_step(BATCH, WeightedLogprobs(BATCH), before_step=refuse)
    assert_unchanged(actor, before)


def test_a_batch_with_everything_masked_is_skipped_with_a_warning(caplog):
    actor = make_actor()
    before = copy_of_weights(actor.policy)
    batch = masked_out(BATCH)
    with caplog.at_level(logging.WARNING):
        metrics = actor.train_step(batch, WeightedLogprobs(batch))
    assert metrics["skipped_steps"] == 1
    assert metrics["num_micro_batches"] == 0
    assert all(value == value for value in metrics.values())
    assert "step 1: none of the 7 responses has a sampled token" in caplog.text
    assert_unchanged(actor, before)
    assert actor.policy.num_rows_of_passes == []


def test_a_batch_of_empty_responses_is_skipped_and_has_no_logprobs():
    actor = make_actor()
    batch = make_batch([3, 4], [[0, 0], [0]])
    assert actor.train_step(batch, WeightedLogprobs(batch))["skipped_steps"] == 1
    assert actor.logprobs(batch).logprobs.shape == (3, 0)


def test_an_empty_response_among_others_leaves_the_step_finite():
    batch = make_batch([3, 4], [[0, 5], [0, 0]])
    metrics = make_actor(6).train_step(batch, WeightedLogprobs(batch))
    assert metrics["skipped_steps"] == 0
    assert metrics["num_micro_batches"] == 1
    assert all(value == value for value in metrics.values())


def test_a_skipped_step_takes_its_place_in_the_schedule():
    actor = make_actor(total_steps=5, schedule="linear")
    batch = masked_out(BATCH)
    rates = [actor.train_step(batch, WeightedLogprobs(batch))["lr"] for _ in range(5)]
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025, 0.0])


def test_all_updates_of_one_run_step_have_its_rate():
    actor = make_actor(total_steps=3, schedule="linear", train={"mini_batches": 2, "epochs": 2})
    rates = [actor.train_step(BATCH, WeightedLogprobs(BATCH))["lr"] for _ in range(12)]
    assert rates == pytest.approx([0.01] * 4 + [0.005] * 4 + [0.0] * 4)


def test_a_run_step_with_fewer_updates_does_not_shift_the_schedule():
    actor = make_actor(total_steps=3, schedule="linear", train={"mini_batches": 2})
    actor.train_step(BATCH, WeightedLogprobs(BATCH))
    actor.begin_step(3)
    assert actor.step == 3
    assert actor.train_step(BATCH, WeightedLogprobs(BATCH))["lr"] == 0.0


def test_the_rate_is_the_one_the_weights_move_by():
    actor = make_actor(weight_decay=0.0, warmup_steps=2)
    before = copy_of_weights(actor.policy)["scale"]
    actor.train_step(BATCH, WeightedLogprobs(BATCH))
    moved = (actor.policy.scale.detach() - before).abs()
    # the first step of AdamW moves each weight by its rate
    torch.testing.assert_close(moved, torch.full((4,), 0.005), rtol=1e-3, atol=0)


def test_a_resumed_actor_continues_exactly():
    actor = make_actor(16, schedule="cosine", warmup_steps=1, total_steps=4)
    for _ in range(2):
        actor.train_step(BATCH, WeightedLogprobs(BATCH))
    file = io.BytesIO()
    torch.save({"actor": actor.state_dict(), "policy": actor.policy.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)

    policy = FakePolicy(seed=1)
    policy.load_state_dict(saved["policy"])
    resumed = make_actor(16, policy=policy, schedule="cosine", warmup_steps=1, total_steps=4)
    resumed.load_state_dict(saved["actor"])
    assert resumed.train_step(BATCH, WeightedLogprobs(BATCH)) == actor.train_step(BATCH, WeightedLogprobs(BATCH))
    assert_same(resumed, actor)


def assert_same(one: HfActor, other: HfActor) -> None:
    torch.testing.assert_close(one.policy.state_dict(), other.policy.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_frozen_parameters_stay_and_have_no_state():
    policy = FakePolicy()
    policy.embedding.requires_grad_(False)
    before = copy_of_weights(policy)["embedding.weight"]
    actor = make_actor(16, policy=policy)
    actor.train_step(BATCH, WeightedLogprobs(BATCH))
    assert torch.equal(policy.embedding.weight, before)
    assert actor.state_dict()["optimizer"].keys() == {"scale", "head.weight", "head.bias"}


def test_a_loss_without_gradient_leaves_the_weights():
    class Constant(WeightedLogprobs):
        def __call__(self, micro_batch, stats) -> LossOutput:
            return LossOutput(torch.zeros(()), {}, {})

    actor = make_actor(16)
    before = copy_of_weights(actor.policy)
    assert actor.train_step(BATCH, Constant(BATCH))["grad_norm"] == 0.0
    assert_unchanged(actor, before)


def test_the_policy_stays_in_eval_mode():
    policy = FakePolicy().train()
    actor = make_actor(policy=policy)
    actor.train_step(BATCH, WeightedLogprobs(BATCH))
    assert not policy.training


def test_a_reference_keeps_the_first_weights_while_the_actor_moves():
    policy = FakePolicy()
    policy.embedding.requires_grad_(False)
    train = TrainConfig(micro_batch_tokens=16)
    reference = Reference.copy_of(policy, train, temperature=0.7)
    actor = make_actor(16, policy=policy)
    first = actor.logprobs(BATCH).logprobs
    assert torch.equal(reference.logprobs(BATCH), first)
    actor.train_step(BATCH, WeightedLogprobs(BATCH))
    assert torch.equal(reference.logprobs(BATCH), first)
    assert not torch.equal(actor.logprobs(BATCH).logprobs, first)
    assert policy.scale.requires_grad
    assert not any(parameter.requires_grad for parameter in reference.policy.parameters())
    assert reference.policy.embedding.weight is policy.embedding.weight


def test_temperature_is_applied_to_reference_and_actor_alike():
    policy = FakePolicy()
    train = TrainConfig()
    warm, cold = (Reference(policy, train, temperature=value).logprobs(BATCH) for value in (1.0, 0.7))
    assert not torch.allclose(warm, cold)
    torch.testing.assert_close(make_actor().logprobs(BATCH).logprobs, cold)
