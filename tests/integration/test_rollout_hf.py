"""The engine hf beyond what every engine must do: families, batches, weights that are shared or half taken."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from models_builders import FAMILIES, mixed_samples
from rollout_conformance import ids_of, load_cpu_policy, make_samples, params, save_lively_model, view_of_actor

from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import RunConfig
from mmrl.engines import decoding
from mmrl.engines.base import SamplingParams
from mmrl.engines.registry import ROLLOUT_ENGINES, build_rollout
from mmrl.engines.rollout_hf import HfRollout
from mmrl.errors import ConfigError, ModelError, RunFailedError
from mmrl.models.policy import PolicyModel, named_weights


@pytest.fixture(scope="module")
def lively(tiny_model, image_store, tmp_path_factory) -> PolicyModel:
    folder = save_lively_model(tiny_model("qwen2_5_vl"), tmp_path_factory.mktemp("lively"), image_store)
    return load_cpu_policy(folder, image_store)


@pytest.fixture(scope="module")
def samples(pictures):
    return make_samples(pictures)


def _engine(policy: PolicyModel, max_batch_rows: int = 64, **options) -> HfRollout:
    return HfRollout(policy, RolloutConfig(max_batch_rows=max_batch_rows), **options)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [0.6, 1.3])
def test_logprobs_are_the_actors_for_every_family(tiny_policy, pictures, family: str, temperature: float) -> None:
    policy = tiny_policy(family)
    groups = _engine(policy).generate(
        mixed_samples(pictures, sees_images=policy.family.sees_images),
        params(12, temperature),
        num_responses=3,
        seed=0,
        step=0,
    )
    assert view_of_actor(policy, groups, temperature).largest_gap < 1e-5


def test_bfloat16_samples_near_the_actor(tiny_policy, pictures) -> None:
    policy = tiny_policy("qwen2_5_vl", dtype="bfloat16")
    groups = _engine(policy).generate(mixed_samples(pictures), params(12), num_responses=3, seed=0, step=0)
    assert view_of_actor(policy, groups, 1.0).largest_gap < 0.05


@pytest.mark.parametrize("compact_below", [0.0, 0.5, 1.1])
@pytest.mark.parametrize(("max_batch_rows", "max_prefill_tokens"), [(64, 16384), (7, 16384), (2, 16384), (64, 1)])
def test_responses_are_the_same_in_any_batch(
    lively, samples, monkeypatch, compact_below: float, max_batch_rows: int, max_prefill_tokens: int
) -> None:
    """Rows that leave at once, late or never; batches of less than a group; a prefill a prompt."""
    settings = params(30)
    expected = ids_of(_engine(lively).generate(samples, settings, num_responses=5, seed=1, step=2))
    assert len({len(ids) for group in expected for ids in group}) > 5
    monkeypatch.setattr(decoding, "COMPACT_BELOW", compact_below)
    monkeypatch.setattr(decoding, "RESERVED_TOKENS", 4)
    engine = _engine(lively, max_batch_rows, max_prefill_tokens=max_prefill_tokens)
    assert ids_of(engine.generate(samples, settings, num_responses=5, seed=1, step=2)) == expected


def test_rows_that_ended_leave_the_batch(lively, samples, monkeypatch) -> None:
    """With every end followed by compaction, as many rows are forwarded as tokens follow a first one."""
    monkeypatch.setattr(decoding, "COMPACT_BELOW", 1.0)
    engine = _engine(lively)
    groups = engine.generate(samples, params(30), num_responses=5, seed=1, step=2)
    lengths = [len(rollout.token_ids) for group in groups for rollout in group.rollouts]
    assert engine.last_stats.decoded_rows == sum(length - 1 for length in lengths)
    assert engine.last_stats.decode_steps == max(lengths) - 1


def test_each_prompt_is_prefilled_once_though_its_group_fills_several_batches(lively, samples, monkeypatch) -> None:
    prefilled = []
    prefill = lively.prefill
    monkeypatch.setattr(lively, "prefill", lambda prompts: prefilled.extend(prompts) or prefill(prompts))
    _engine(lively, max_batch_rows=3).generate(samples, params(4), num_responses=7, seed=0, step=0)
    assert [len(prompt) for prompt in prefilled] == [lively.prompts.num_tokens(sample) for sample in samples]


def test_a_stop_string_that_is_never_said_changes_nothing(lively, samples) -> None:
    engine = _engine(lively)
    free = engine.generate(samples, params(16), num_responses=3, seed=0, step=0)
    settings = SamplingParams(16, stop=("never said", "nor this"))
    assert ids_of(engine.generate(samples, settings, num_responses=3, seed=0, step=0)) == ids_of(free)


def test_shared_weights_are_not_read_again(tiny_policy, samples) -> None:
    policy = tiny_policy("qwen2_5_vl")
    engine = _engine(policy)

    def unread() -> Iterator:
        raise AssertionError("weights that are shared need no copy")
        yield

    engine.update_weights(unread(), 4)
    with torch.no_grad():
        policy.family.head(policy.hf).weight.mul_(3)
    groups = engine.generate(samples, params(8), num_responses=2, seed=0, step=0)
    assert {rollout.policy_version for group in groups for rollout in group.rollouts} == {4}
    assert view_of_actor(policy, groups, 1.0).largest_gap < 1e-5


def test_an_update_that_does_not_fit_names_the_weights_and_stops_the_engine(tiny_policy, samples) -> None:
    policy, sender = tiny_policy("qwen2_5_vl"), tiny_policy("qwen2_5_vl")
    engine = _engine(policy, shares_weights=False)
    weights = dict(named_weights(sender))
    norm = weights.pop("model.norm.weight")
    wrong = weights | {"model.norm.bias": norm, "lm_head.weight": weights["lm_head.weight"][:-1]}
    with pytest.raises(ModelError) as caught:
        engine.update_weights(iter(wrong.items()), 1)
    message = str(caught.value)
    assert "1 missing (model.norm.weight)" in message
    assert "1 unknown (model.norm.bias)" in message
    rows, columns = weights["lm_head.weight"].shape
    assert f"lm_head.weight ({rows - 1}, {columns}) for ({rows}, {columns})" in message
    assert engine.policy_version == 0
    with pytest.raises(ModelError, match="half-way"):
        engine.generate(samples, params(4), num_responses=1, seed=0, step=0)
    engine.update_weights(named_weights(sender), 1)
    assert len(engine.generate(samples, params(4), num_responses=1, seed=0, step=0)) == len(samples)


def test_weights_that_have_diverged_stop_the_run(tiny_policy, samples) -> None:
    policy = tiny_policy("qwen2_5_vl")
    with torch.no_grad():
        policy.family.head(policy.hf).weight.fill_(torch.nan)
    with pytest.raises(RunFailedError, match="not finite"):
        _engine(policy).generate(samples[:1], params(4), num_responses=2, seed=0, step=0)


def test_a_policy_is_sampled_without_gradients_and_left_as_it_was(tiny_policy, samples) -> None:
    policy = tiny_policy("qwen2_5_vl")
    before = {name: weight.clone() for name, weight in policy.named_parameters()}
    _engine(policy).generate(samples, params(4), num_responses=2, seed=0, step=0)
    for name, weight in policy.named_parameters():
        assert weight.requires_grad
        assert weight.grad is None
        assert torch.equal(weight, before[name])


def test_engines_are_found_by_their_names_in_the_config(tiny_policy) -> None:
    names = RolloutConfig.model_fields["engine"].annotation.__args__
    assert set(names) == set(ROLLOUT_ENGINES)
    policy = tiny_policy("qwen2_5_vl")
    config = RunConfig.model_validate({"name": "r", "model": {"path": "m"}, "data": {"train": "t"}})
    assert isinstance(build_rollout(config, policy, [], model_folder="m"), HfRollout)
    other = config.model_copy(update={"rollout": config.rollout.model_copy(update={"engine": "sglang"})})
    with pytest.raises(ConfigError, match="there are hf, vllm"):
        build_rollout(other, policy, [], model_folder="m")


def test_a_limit_that_no_response_reaches_takes_no_memory(lively, samples) -> None:
    policy = copy.deepcopy(lively, {id(item): item for item in (lively.prompts, lively.family)})
    policy.end_token_ids = frozenset(range(policy.hf.config.get_text_config().vocab_size))
    groups = _engine(policy).generate(samples[:2], params(10**9), num_responses=2, seed=0, step=0)
    assert [len(row.token_ids) for group in groups for row in group.rollouts] == [1] * 4


def test_responses_longer_than_the_room_made_at_first_are_whole(lively, samples, monkeypatch) -> None:
    policy = copy.deepcopy(lively, {id(item): item for item in (lively.prompts, lively.family)})
    policy.end_token_ids = frozenset()
    once = _engine(policy).generate(samples[:2], params(23), num_responses=2, seed=0, step=0)
    monkeypatch.setattr(decoding, "RESERVED_TOKENS", 3)
    again = _engine(policy).generate(samples[:2], params(23), num_responses=2, seed=0, step=0)
    assert ids_of(again) == ids_of(once)
    assert {len(row.token_ids) for group in again for row in group.rollouts} == {23}
