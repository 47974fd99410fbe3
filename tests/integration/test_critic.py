"""The critic on tiny real models: values from the states before the tokens, gradients, learning, and its state."""

from __future__ import annotations

import copy

import pytest
import torch
from models_builders import mixed_batch

from mmrl.algorithms.value_loss import ValueObjective
from mmrl.config.critic import CriticConfig
from mmrl.config.optim import OptimConfig
from mmrl.config.run import TrainConfig
from mmrl.engines.critic import HfCritic, value_model_like, value_model_of
from mmrl.engines.micro_batches import plan_micro_batches
from mmrl.errors import ModelError
from mmrl.models.value_model import ValueModel

CONFIG = CriticConfig(optim=OptimConfig(lr=3e-3, weight_decay=0.0))


def random_head(model: ValueModel) -> ValueModel:
    torch.manual_seed(0)
    torch.nn.init.normal_(model.head.weight)
    torch.nn.init.normal_(model.head.bias)
    return model


def with_targets(batch):
    draw = torch.Generator().manual_seed(1)
    mask = batch.response_mask
    noise = [torch.randn(mask.shape, generator=draw) * mask for _ in range(2)]
    return batch.with_(returns=noise[0], values=noise[1])


def train_config(*, budget: int = 16384, path: str = "prefix") -> TrainConfig:
    return TrainConfig.model_validate({"micro_batch_tokens": budget, "path": path})


def gradients_of(model: ValueModel, batch, *, budget: int, path: str = "prefix") -> dict[str, torch.Tensor]:
    """What one optimiser step finds, seen just before it would move the weights."""
    train = train_config(budget=budget, path=path)
    updates = HfCritic(model, CONFIG, train, total_steps=1)._updates
    updates.compute(batch, ValueObjective(batch, value_clip=0.5))
    seen = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    updates.discard()
    return seen


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "qwen2"])
def test_a_value_is_read_from_the_hidden_state_before_its_token_on_both_paths(tiny_policy, pictures, family):
    policy = tiny_policy(family)
    model = random_head(value_model_like(policy))
    batch = mixed_batch(policy, pictures)
    with torch.no_grad():
        prefix, plain = model(batch), model(batch, path="plain")
        assert torch.equal(prefix == 0, batch.response_mask == 0)
        torch.testing.assert_close(prefix, plain, rtol=1e-4, atol=1e-4)
        # The row that was cut at the limit, by hand: its prompt and tokens through the model, the state before each.
        row = int(batch.response_lengths.argmax())
        alone = batch.select_rows(torch.tensor([row]))
        grown = policy.extend(policy.prefill(alone.prompts), alone.response_ids[:, :-1])[0]
        states = torch.cat([policy.prefill(alone.prompts).last_hidden[:, None], grown], dim=1)[0]
        expected = model.head(states)[:, 0] * alone.response_mask[0]
    torch.testing.assert_close(prefix[row, : expected.shape[0]], expected, rtol=1e-4, atol=1e-4)


def test_gradients_do_not_depend_on_micro_batches_or_path(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl")
    model = random_head(value_model_like(policy))
    batch = with_targets(mixed_batch(policy, pictures))
    whole = gradients_of(model, batch, budget=16384)
    assert len(plan_micro_batches(batch, 60)) > 3
    for other in (gradients_of(model, batch, budget=60), gradients_of(model, batch, budget=16384, path="plain")):
        assert other.keys() == whole.keys()
        scale = sum(float(gradient.norm()) ** 2 for gradient in whole.values()) ** 0.5
        gap = sum(float((other[name] - gradient).norm()) ** 2 for name, gradient in whole.items()) ** 0.5
        assert gap / scale < 1e-4
    assert "head.weight" in whole
    assert not any("lm_head" in name for name in whole)


def test_the_local_sums_of_two_shards_add_up_to_the_gradient_of_the_whole(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl")
    model = random_head(value_model_like(policy))
    batch = with_targets(mixed_batch(policy, pictures))
    whole = gradients_of(model, batch, budget=16384)
    objective = ValueObjective(batch, value_clip=0.5)
    model.zero_grad()
    for shard in (batch.select_prompts(0, 1), batch.select_prompts(1, 4)):
        objective(shard, model(shard)).loss.backward()
    for name, gradient in whole.items():
        torch.testing.assert_close(dict(model.named_parameters())[name].grad, gradient, rtol=1e-3, atol=1e-5)


def test_a_new_critic_expects_nothing_and_learns_its_returns_without_moving_the_policy(tiny_policy, pictures):
    policy = tiny_policy("qwen2")
    before = {name: weight.clone() for name, weight in policy.named_parameters()}
    batch = mixed_batch(policy, pictures)
    critic = HfCritic(value_model_like(policy), CONFIG, train_config(), total_steps=20)
    assert not critic.values(batch).any()
    batch = batch.with_(returns=torch.arange(batch.num_rows)[:, None] / batch.num_rows * batch.response_mask)
    losses = []
    for _ in range(20):
        batch = batch.with_(values=critic.values(batch))
        losses.append(critic.train_step(batch)["critic/loss"])
    assert losses[-1] < losses[0] / 5
    assert all(torch.equal(before[name], weight) for name, weight in policy.named_parameters())


def test_a_restored_critic_takes_the_same_step(tiny_policy, pictures):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    batch = with_targets(mixed_batch(policy, pictures))
    critic = HfCritic(value_model_like(policy), CONFIG, train_config(), total_steps=3)
    critic.train_step(batch)
    state = {
        "weights": {name: weight.clone() for name, weight in critic.state_dict()["weights"].items()},
        "optimizer": {n: {k: v.clone() for k, v in s.items()} for n, s in critic.state_dict()["optimizer"].items()},
        "num_updates": critic.state_dict()["num_updates"],
    }
    assert not any("visual.blocks" in name for name in state["weights"]), (
        "what is frozen needs no place in a checkpoint"
    )
    critic.train_step(batch)
    again = HfCritic(value_model_like(policy), CONFIG, train_config(), total_steps=3)
    again.load_state_dict(state)
    again.train_step(batch)
    for (name, weight), other in zip(critic.model.named_parameters(), again.model.parameters(), strict=True):
        assert torch.equal(weight, other), name
    del state["weights"]["head.bias"]
    with pytest.raises(ModelError, match=r"critic\.freeze"):
        again.load_state_dict(state)


def test_t13_a_batch_with_nothing_sampled_moves_no_weight_of_the_critic(tiny_policy, pictures):
    """Its kind: every response was cut and masked, here seen by the critic."""
    policy = tiny_policy("qwen2_5_vl")
    batch = mixed_batch(policy, pictures)
    nothing = torch.zeros_like(batch.response_mask)
    batch = batch.with_(response_mask=nothing, returns=nothing, values=nothing)
    critic = HfCritic(value_model_like(policy), CONFIG, train_config(), total_steps=1)
    before = {name: weight.clone() for name, weight in critic.model.named_parameters()}
    assert not critic.values(batch).any()
    assert critic.train_step(batch)["skipped_steps"] == 1
    assert all(torch.equal(before[name], weight) for name, weight in critic.model.named_parameters())


def test_a_critic_of_another_vocabulary_is_refused(tiny_policy):
    policy = tiny_policy("qwen2_5_vl")
    other = tiny_policy("qwen2")
    if other.prompts.tokenizer.get_vocab() == policy.prompts.tokenizer.get_vocab():
        other.prompts = copy.copy(other.prompts)
        other.prompts.tokenizer = copy.deepcopy(other.prompts.tokenizer)
        other.prompts.tokenizer.add_tokens(["<|other|>"])
    with pytest.raises(ModelError, match=r"critic\.model: its tokenizer is another than the policy's"):
        value_model_of(other, policy)


def test_a_frozen_towers_features_are_computed_once_for_policy_and_critic(tiny_policy, pictures, monkeypatch):
    policy = tiny_policy("qwen2_5_vl", freeze=("vision",))
    model = random_head(value_model_like(policy))
    batch = mixed_batch(policy, pictures)
    with torch.no_grad():
        expected = model(batch)
        policy(batch)

        def again(*_: object) -> None:
            raise AssertionError("the tower ran for images whose features are kept")

        monkeypatch.setattr(type(policy.family), "tower_features", again)
        assert torch.equal(model(batch), expected)
        policy(batch)
