"""The update that takes what sampling forwarded has the gradient of the one that forwards everything itself."""

from __future__ import annotations

import pytest
import torch
from kept_steps import BUDGET, Step, relative_gap
from models_builders import VISION_FAMILIES

from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import TrainConfig
from mmrl.engines.rollout_hf import HfRollout
from mmrl.models.flops import forward_flops

CASES = [
    *((family, freeze) for family in VISION_FAMILIES for freeze in [(), ("vision",)]),
    ("qwen2_5_vl", ("vision", "projector")),
    ("qwen2_5_vl", ("language",)),
    ("qwen2", ()),
]


@pytest.mark.parametrize(("family", "freeze"), CASES, ids=str)
def test_gradients_are_those_of_prompts_forwarded_again(tiny_policy, pictures, family, freeze):
    step = Step(tiny_policy(family, freeze=freeze), pictures)
    plain = step.gradients(for_update=False)
    assert relative_gap(step.gradients(for_update=True), plain) < 1e-6


@pytest.mark.parametrize(("family", "freeze"), CASES, ids=str)
def test_gradients_are_the_same_with_checkpointing(tiny_policy, pictures, family, freeze):
    plain = Step(tiny_policy(family, freeze=freeze), pictures).gradients(for_update=False)
    train = TrainConfig(micro_batch_tokens=BUDGET, gradient_checkpointing=True)
    step = Step(tiny_policy(family, freeze=freeze), pictures, train=train)
    assert relative_gap(step.gradients(for_update=False), plain) < 1e-6
    assert relative_gap(step.gradients(for_update=True), plain) < 1e-6


def test_a_group_that_is_divided_sends_all_its_parts_through_the_kept_prompt(tiny_policy, pictures):
    """With a budget of hardly more than a prompt, each response is a micro-batch of its own."""
    whole = Step(tiny_policy("qwen2_5_vl"), pictures).gradients(for_update=False)
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=TrainConfig(micro_batch_tokens=40))
    step.policy.kept_prompts.max_tokens = BUDGET
    assert relative_gap(step.gradients(for_update=True), whole) < 1e-6


def test_prompts_over_the_budget_are_forwarded_again_beside_kept_ones(tiny_policy, pictures):
    plain = Step(tiny_policy("qwen2_5_vl"), pictures).gradients(for_update=False)
    step = Step(tiny_policy("qwen2_5_vl"), pictures)
    step.sampler = HfRollout(step.policy, RolloutConfig(max_batch_rows=4))
    lengths = [len(step.policy.prompts.prepare(sample)) for sample in step.samples]
    step.policy.kept_prompts.max_tokens = sum(lengths) - min(lengths)
    assert relative_gap(step.gradients(for_update=True), plain) < 1e-6


def test_the_tower_runs_once_a_step(tiny_policy, pictures, tower_calls):
    step = Step(tiny_policy("qwen2_5_vl"), pictures)
    batch, objective = step.sample()
    step.actor.logprobs(batch)
    step.actor.train_step(batch, objective)
    assert len(tower_calls) == 1


def test_what_was_kept_is_worth_nothing_once_weights_moved(tiny_policy, pictures, tower_calls):
    step = Step(tiny_policy("qwen2_5_vl"), pictures)
    batch, _ = step.sample()
    with torch.no_grad():
        next(step.policy.hf.parameters()).add_(1e-3)
    expected = step.policy(batch).logprobs.detach()
    assert len(tower_calls) == 2
    fresh = tiny_policy("qwen2_5_vl")
    fresh.hf.load_state_dict(step.policy.hf.state_dict())
    assert torch.allclose(fresh(batch).logprobs, expected, atol=1e-6)


def test_evaluation_keeps_nothing(tiny_policy, pictures):
    step = Step(tiny_policy("qwen2_5_vl"), pictures)
    batch, objective = step.sample(for_update=False)
    assert step.policy.kept_prompts.of(batch.prompts) == []
    assert step.actor.train_step(batch, objective)["prompts_kept"] == 0


def test_the_share_of_kept_prompts_is_told_and_their_forward_pass_counts_once(tiny_policy, pictures):
    train = TrainConfig(micro_batch_tokens=BUDGET, kept_responses_mb=0)
    step = Step(tiny_policy("qwen2_5_vl"), pictures, train=train)
    counts = {}
    for for_update in (True, False):
        batch, objective = step.sample(for_update=for_update)
        counts[for_update] = step.actor.train_step(batch, objective)
    assert (counts[True]["prompts_kept"], counts[False]["prompts_kept"]) == (1, 0)
    prompts = forward_flops(step.policy, batch.prompts, (), ()).total
    assert counts[False]["flops"] - counts[True]["flops"] == pytest.approx(prompts)


def test_a_failed_update_leaves_nothing_behind(tiny_policy, pictures):
    step = Step(tiny_policy("qwen2_5_vl"), pictures)
    batch, objective = step.sample()

    def refuse(logprobs):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        step.actor.train_step(batch, objective, before_step=refuse)
    assert all(weight.grad is None for weight in step.policy.parameters())
    assert relative_gap(step.gradients(for_update=True), step.gradients(for_update=False)) < 1e-6


def test_steps_one_after_another_are_those_without_keeping(tiny_policy, pictures):
    """Two whole steps: the second one samples under the weights that the first one made."""
    weights = []
    for for_update in (True, False):
        step = Step(tiny_policy("qwen2_5_vl"), pictures)
        for number in range(2):
            batch, objective = step.sample(for_update=for_update, step=number)
            step.actor.train_step(batch, objective)
        weights.append([weight.detach().clone() for weight in step.policy.parameters()])
    for kept, plain in zip(*weights, strict=True):
        assert torch.allclose(kept, plain, atol=2e-5)
