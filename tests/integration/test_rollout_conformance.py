"""The conformance test of rollout engines: what every engine must do, in float32 on the CPU."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from rollout_conformance import (
    ENGINES,
    argmax_decoding,
    ids_of,
    load_cpu_policy,
    make_samples,
    params,
    save_lively_model,
    stop_over_several_tokens,
    view_of_actor,
)
from transformers import AutoModelForImageTextToText

from mmrl.data.images import ImageStore
from mmrl.engines.base import RolloutEngine
from mmrl.errors import ConfigError, MmrlError
from mmrl.models.policy import PolicyModel, named_weights
from mmrl.types import Rollout, RolloutGroup, Sample


@pytest.fixture(scope="module", params=ENGINES)
def make_engine(request: pytest.FixtureRequest):
    return ENGINES[request.param]


@pytest.fixture(scope="module")
def folder(tiny_model, image_store: ImageStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_lively_model(tiny_model("qwen2_5_vl"), tmp_path_factory.mktemp("lively"), image_store)


@pytest.fixture(scope="module")
def engine(make_engine, folder: Path, image_store: ImageStore) -> Iterator[RolloutEngine]:
    engine = make_engine(folder, image_store, 64)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def actor(folder: Path, image_store: ImageStore) -> PolicyModel:
    return load_cpu_policy(folder, image_store)


@pytest.fixture(scope="module")
def samples(pictures) -> list[Sample]:
    return make_samples(pictures)


def _rollouts(groups) -> list[Rollout]:
    return [rollout for group in groups for rollout in group.rollouts]


def test_every_sample_gets_its_number_of_rollouts_in_order(engine: RolloutEngine, samples: list[Sample]) -> None:
    twice = [*samples, samples[0]]
    groups = engine.generate(twice, params(6), num_responses=3, seed=0, step=0)
    assert [group.sample for group in groups] == twice
    for group in groups:
        assert [rollout.index for rollout in group.rollouts] == [0, 1, 2]
        assert {rollout.sample_id for rollout in group.rollouts} == {group.sample.id}
    assert ids_of(groups)[0] != ids_of(groups)[-1], "a sample that comes again gets responses of its own"


def test_nothing_is_sampled_for_no_samples(engine: RolloutEngine) -> None:
    assert engine.generate([], params(6), num_responses=3, seed=0, step=0) == []


def test_groups_are_handed_over_as_they_are_finished(engine: RolloutEngine, samples: list[Sample]) -> None:
    handed: list[RolloutGroup] = []
    groups = engine.generate(samples, params(6), num_responses=2, seed=0, step=0, on_group=handed.append)
    assert {id(group) for group in handed} == {id(group) for group in groups}
    assert len(handed) == len(groups)
    without = engine.generate(samples, params(6), num_responses=2, seed=0, step=0)
    assert ids_of(without) == ids_of(groups)


def test_a_rollout_is_whole(engine: RolloutEngine, actor: PolicyModel, samples: list[Sample]) -> None:
    """A logprob and mask entry a token; an end token only at the end, and only in one that stopped; else the limit."""
    rollouts = _rollouts(engine.generate(samples, params(20), num_responses=8, seed=0, step=0))
    for rollout in rollouts:
        assert len(rollout.token_ids) == len(rollout.logprobs) == len(rollout.response_mask) >= 1
        assert set(rollout.response_mask) == {1}
        assert all(logprob <= 0 for logprob in rollout.logprobs)
        assert rollout.text == actor.prompts.decode(rollout.token_ids)
        assert rollout.policy_version == engine.policy_version
        assert 0 <= rollout.seed < 2**63
        ends = [place for place, token_id in enumerate(rollout.token_ids) if token_id in actor.end_token_ids]
        if rollout.finish_reason == "stop":
            assert ends == [len(rollout.token_ids) - 1]
        else:
            assert (ends, len(rollout.token_ids)) == ([], 20)
    assert len({rollout.seed for rollout in rollouts}) == len(rollouts)
    assert {rollout.finish_reason for rollout in rollouts} == {"stop", "length"}


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_logprobs_are_the_actors(
    engine: RolloutEngine, actor: PolicyModel, samples: list[Sample], temperature: float
) -> None:
    """Text only, one image and several in one call, under bans and temperature; a truncated support changes nothing."""
    for settings in (params(16, temperature), params(16, temperature, top_p=0.8, top_k=40)):
        groups = engine.generate(samples, settings, num_responses=4, seed=1, step=0)
        assert view_of_actor(actor, groups, temperature).largest_gap < 1e-5


def test_vision_and_control_ids_are_never_sampled_however_likely(
    engine: RolloutEngine, actor: PolicyModel, samples: list[Sample]
) -> None:
    banned = set(actor.prompts.banned_token_ids)
    assert actor.prompts.image_token_id in banned
    prompt = actor.prefill([actor.prompts.prepare(samples[1])])
    logits = actor.family.head(actor.hf)(prompt.last_hidden)[0]
    assert logits.softmax(-1)[sorted(banned)].sum() > 0.99
    for temperature in (0.0, 1.3):
        groups = engine.generate(samples, params(20, temperature), num_responses=8, seed=2, step=0)
        assert not banned & {token_id for rollout in _rollouts(groups) for token_id in rollout.token_ids}


def test_a_response_depends_on_nothing_but_its_own_seed(
    make_engine, engine: RolloutEngine, folder: Path, image_store: ImageStore, samples: list[Sample]
) -> None:
    """Alone, among others, in another order, in a larger group, and in batches of few rows: the same responses."""
    together = engine.generate(samples, params(20), num_responses=4, seed=5, step=7)
    expected = ids_of(together)
    for place, sample in enumerate(samples):
        alone = engine.generate([sample], params(20), num_responses=1, seed=5, step=7)
        assert ids_of(alone)[0] == expected[place][:1]
    assert ids_of(engine.generate(samples[::-1], params(20), num_responses=4, seed=5, step=7)) == expected[::-1]
    more = engine.generate(samples, params(20), num_responses=6, seed=5, step=7)
    assert [group[:4] for group in ids_of(more)] == expected
    small = make_engine(folder, image_store, 3)
    assert ids_of(small.generate(samples, params(20), num_responses=4, seed=5, step=7)) == expected
    small.close()


def test_another_seed_step_or_index_gives_another_response(engine: RolloutEngine, samples: list[Sample]) -> None:
    def first(seed: int, step: int) -> list[tuple[int, ...]]:
        return ids_of(engine.generate(samples[:1], params(12), num_responses=4, seed=seed, step=step))[0]

    responses = [*first(0, 0), *first(1, 0), *first(0, 1)]
    assert len(set(responses)) == len(responses)
    assert first(0, 0) == responses[:4]


def test_first_tokens_follow_the_actors_distribution(
    engine: RolloutEngine, actor: PolicyModel, samples: list[Sample]
) -> None:
    """Chi-square of 1,000 first tokens at a fixed seed, rare tokens as one, within 5 standard deviations."""
    groups = engine.generate(samples[1:2], params(1, 0.8), num_responses=1000, seed=0, step=0)
    ids = torch.tensor([rollout.token_ids[0] for rollout in _rollouts(groups)])
    prompt = actor.prefill([actor.prompts.prepare(samples[1])])
    expected = actor.log_probs_of(prompt.last_hidden, 0.8)[0].double().exp() * len(ids)
    counts = ids.bincount(minlength=len(expected)).double()
    is_rare = expected < 5
    expected = torch.cat([expected[~is_rare], expected[is_rare].sum()[None]])
    counts = torch.cat([counts[~is_rare], counts[is_rare].sum()[None]])
    freedom = len(expected) - 1
    assert freedom > 10
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - freedom) < 5 * math.sqrt(2 * freedom)


def test_greedy_is_argmax_of_the_plain_model_with_logprobs_at_temperature_1(
    engine: RolloutEngine, actor: PolicyModel, folder: Path, samples: list[Sample]
) -> None:
    """Against transformers' own model and processor, the whole prompt and response forwarded anew for each token."""
    groups = engine.generate(samples, params(8, 0.0), num_responses=1, seed=0, step=0)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    banned = torch.tensor(actor.prompts.banned_token_ids)
    for group in groups:
        rollout = group.rollouts[0]
        assert list(rollout.token_ids) == argmax_decoding(model, actor, group.sample, banned, limit=8)
    assert view_of_actor(actor, groups, 1.0).largest_gap < 1e-5


def test_the_smallest_support_is_greedy(engine: RolloutEngine, samples: list[Sample]) -> None:
    greedy = engine.generate(samples, params(8, 0.0), num_responses=1, seed=0, step=0)
    for settings in (params(8, top_k=1), params(8, top_p=1e-6)):
        assert ids_of(engine.generate(samples, settings, num_responses=1, seed=0, step=0)) == ids_of(greedy)


def test_a_response_ends_with_the_token_that_completes_a_stop_string(
    engine: RolloutEngine, actor: PolicyModel, samples: list[Sample]
) -> None:
    """Case O11. What was sampled up to there is what would have been sampled without it, and the text is that of the
    kept ids."""
    free = engine.generate(samples, params(20), num_responses=4, seed=3, step=0)
    stop = stop_over_several_tokens(actor, _rollouts(free))
    stopped = engine.generate(samples, params(20, stop=stop), num_responses=4, seed=3, step=0)
    num_stopped = 0
    for before, after in zip(_rollouts(free), _rollouts(stopped), strict=True):
        if stop not in before.text:
            assert after.token_ids == before.token_ids
            continue
        num_stopped += 1
        assert after.token_ids == before.token_ids[: len(after.token_ids)]
        assert stop in after.text
        assert stop not in actor.prompts.decode(after.token_ids[:-1])
        assert (after.finish_reason, after.text) == ("stop", actor.prompts.decode(after.token_ids))
        assert len(after.logprobs) == len(after.response_mask) == len(after.token_ids)
    assert num_stopped >= 1
    assert view_of_actor(actor, stopped, 1.0).largest_gap < 1e-5


def test_a_response_of_one_token_stops_or_is_cut_there(
    engine: RolloutEngine, actor: PolicyModel, samples: list[Sample]
):
    rollouts = _rollouts(engine.generate(samples, params(1), num_responses=32, seed=0, step=0))
    for rollout in rollouts:
        has_ended = rollout.token_ids[0] in actor.end_token_ids
        assert (len(rollout.token_ids), rollout.finish_reason) == (1, "stop" if has_ended else "length")


def test_new_weights_sample_what_they_should_whatever_was_cached(
    engine: RolloutEngine, actor: PolicyModel, folder: Path, image_store: ImageStore, samples: list[Sample]
) -> None:
    """Language, projector and vision change; images and prompts are ones that the engine has seen before."""
    before = engine.generate(samples, params(12), num_responses=4, seed=0, step=0)
    changed = load_cpu_policy(folder, image_store)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in changed.hf.parameters():
            weight += 0.2 * weight.std() * torch.randn(weight.shape, generator=draw) if weight.ndim > 1 else 0.0
    old_version = engine.policy_version
    engine.update_weights(named_weights(changed), old_version + 5)
    after = engine.generate(samples, params(12), num_responses=4, seed=0, step=0)
    assert {rollout.policy_version for rollout in _rollouts(after)} == {engine.policy_version} == {old_version + 5}
    assert ids_of(after) != ids_of(before)
    assert view_of_actor(changed, after, 1.0).largest_gap < 1e-5
    assert view_of_actor(actor, after, 1.0).largest_gap > 1e-2

    engine.update_weights(named_weights(actor), old_version + 6)
    again = engine.generate(samples, params(12), num_responses=4, seed=0, step=0)
    assert ids_of(again) == ids_of(before)


def test_sampling_defaults_of_the_checkpoint_have_no_effect(
    make_engine, engine: RolloutEngine, folder: Path, image_store: ImageStore, samples: list[Sample], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    settings = json.loads((copy / "generation_config.json").read_text())
    settings |= {"do_sample": True, "repetition_penalty": 3.0, "temperature": 0.1, "top_k": 2, "top_p": 0.3}
    (copy / "generation_config.json").write_text(json.dumps(settings))
    other = make_engine(copy, image_store, 64)
    expected = ids_of(engine.generate(samples, params(20), num_responses=4, seed=0, step=0))
    assert ids_of(other.generate(samples, params(20), num_responses=4, seed=0, step=0)) == expected
    other.close()


def test_settings_that_make_no_sense_are_refused(engine: RolloutEngine, samples: list[Sample]) -> None:
    for wrong in (params(0), params(4, -1.0), params(4, top_p=0.0), params(4, top_k=-1)):
        with pytest.raises(ConfigError):
            engine.generate(samples, wrong, num_responses=1, seed=0, step=0)
    with pytest.raises(ConfigError, match="num_responses"):
        engine.generate(samples, params(4), num_responses=0, seed=0, step=0)


def test_what_a_call_did_can_be_read_afterwards(
    engine: RolloutEngine, actor: PolicyModel, samples: list[Sample]
) -> None:
    groups = engine.generate(samples, params(10), num_responses=3, seed=0, step=0)
    stats = engine.last_stats
    assert stats is not None
    assert stats.prompt_tokens == sum(actor.prompts.num_tokens(sample) for sample in samples)
    assert stats.response_tokens == sum(len(rollout.token_ids) for rollout in _rollouts(groups))
    assert stats.prefill_s > 0
    assert stats.decode_s > 0
    assert stats.flops > 2 * stats.response_tokens * sum(weight.numel() for weight in actor.hf.lm_head.parameters())


def test_a_closed_engine_says_so(make_engine, folder: Path, image_store: ImageStore, samples: list[Sample]) -> None:
    engine = make_engine(folder, image_store, 8)
    engine.close()
    with pytest.raises(MmrlError, match="closed"):
        engine.generate(samples, params(4), num_responses=1, seed=0, step=0)
