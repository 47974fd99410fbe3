"""What only the rollout engine `vllm` can get wrong: its weights, its caches, its prompts, its place in the process."""

from __future__ import annotations

import json
import logging
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from rollout_conformance import (
    ENGINES,
    ROOMY,
    ids_of,
    load_cpu_policy,
    make_samples,
    params,
    save_lively_model,
    view_of_actor,
    vllm_config,
)
from torch import Tensor

from mmrl.data.images import ImageStore
from mmrl.engines import vllm_process, vllm_prompts
from mmrl.engines.rollout_vllm import VllmRollout
from mmrl.engines.vllm_build import build_vllm_rollout
from mmrl.engines.vllm_sleep import VllmSleeper
from mmrl.errors import ConfigError, ModelError
from mmrl.models.loading import load_prompts
from mmrl.models.policy import PolicyModel, named_weights, save_policy
from mmrl.types import Message, Sample, TextPart

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def folder(tiny_model, image_store: ImageStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_lively_model(tiny_model("qwen2_5_vl"), tmp_path_factory.mktemp("lively"), image_store)


@pytest.fixture(scope="module")
def engine(folder: Path, image_store: ImageStore) -> Iterator[VllmRollout]:
    engine = ENGINES["vllm"](folder, image_store, 64)
    assert isinstance(engine, VllmRollout)
    yield engine
    engine.close()


@pytest.fixture
def actor(folder: Path, image_store: ImageStore, engine: VllmRollout) -> Iterator[PolicyModel]:
    """The engine has its weights, and gets them back after a test that gave it others."""
    actor = load_cpu_policy(folder, image_store)
    yield actor
    engine.update_weights(named_weights(load_cpu_policy(folder, image_store)), 0)


@pytest.fixture(scope="module")
def samples(pictures) -> list[Sample]:
    return make_samples(pictures)


@torch.no_grad()
def perturb(policy: PolicyModel, *, seed: int = 0) -> PolicyModel:
    draw = torch.Generator().manual_seed(seed)
    for weight in policy.hf.parameters():
        if weight.ndim > 1:
            weight += 0.2 * weight.std() * torch.randn(weight.shape, generator=draw)
    return policy


def sync_gap(engine: VllmRollout, policy: PolicyModel, samples: list[Sample], *, version: int = 1) -> float:
    engine.update_weights(named_weights(policy), version)
    groups = engine.generate(samples, params(12), num_responses=2, seed=0, step=version)
    return view_of_actor(policy, groups, 1.0).largest_gap


def test_the_same_seeds_draw_the_same_tokens_as_the_engine_hf(
    engine: VllmRollout, actor: PolicyModel, folder: Path, image_store: ImageStore, samples: list[Sample]
) -> None:
    """So a run may change its engine: nothing in what it samples changes with it, but for rounding."""
    hf = ENGINES["hf"](folder, image_store, 64)
    for settings in (params(16), params(16, 0.7, top_p=0.9, top_k=30)):
        expected = ids_of(hf.generate(samples, settings, num_responses=4, seed=1, step=3))
        assert ids_of(engine.generate(samples, settings, num_responses=4, seed=1, step=3)) == expected


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.3])
def test_o08_the_ratio_before_any_update_is_1_at_every_temperature(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample], temperature: float
) -> None:
    groups = engine.generate(samples, params(16, temperature), num_responses=4, seed=4, step=0)
    view = view_of_actor(actor, groups, temperature)
    ratios = (view.actor - view.sampler).exp()[view.mask > 0]
    torch.testing.assert_close(ratios, torch.ones_like(ratios), atol=1e-5, rtol=0)


def test_o15_two_prompts_and_four_responses_each_are_eight(engine: VllmRollout, samples: list[Sample]) -> None:
    groups = engine.generate(samples[:2], params(4), num_responses=4, seed=0, step=0)
    assert [len(group.rollouts) for group in groups] == [4, 4]
    assert len({rollout.seed for group in groups for rollout in group.rollouts}) == 8


def test_o12_ids_are_those_that_were_sampled_not_those_of_the_text(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample]
) -> None:
    """Most texts of a random model would be read as other ids, and as another number of them."""
    groups = engine.generate(samples, params(16), num_responses=8, seed=6, step=0)
    assert view_of_actor(actor, groups, 1.0).largest_gap < 1e-5
    tokenizer, ends = actor.prompts.tokenizer, actor.prompts.end_token_ids
    said = [[one for one in rollout.token_ids if one not in ends] for group in groups for rollout in group.rollouts]
    again = [tokenizer.encode(actor.prompts.decode(ids), add_special_tokens=False) for ids in said]
    assert sum(len(one) != len(other) for one, other in zip(again, said, strict=True)) > len(said) / 2


def test_o10_the_settings_that_hold_are_logged_once(
    folder: Path, engine: VllmRollout, samples: list[Sample], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, logger="mmrl.engines"):
        for _ in range(2):
            engine.generate(samples[:1], params(3, 0.9, top_p=0.95), num_responses=1, seed=0, step=0)
    (line,) = [record.getMessage() for record in caplog.records if "samples with" in record.getMessage()]
    for shown in ("temperature 0.9", "top_p 0.95", "top_k 0", "repetition_penalty 1.0", "presence_penalty 0.0"):
        assert shown in line


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_o03_the_head_is_right_after_every_update_tied_or_not(
    tiny_model, image_store: ImageStore, samples: list[Sample], tmp_path: Path, tied: bool
) -> None:
    """Embeddings and, where it has weights of its own, the head move on their own; twice, since the second update
    comes upon what the first one left."""
    folder = tiny_model("qwen2_5_vl", tie_embeddings=tied)
    policy = load_cpu_policy(folder, image_store)
    engine = build_vllm_rollout(vllm_config(folder), policy.prompts, ROOMY, model_folder=folder)
    try:
        assert sync_gap(engine, policy, samples) < 1e-5
        for version in (2, 3):
            before = policy.hf.get_output_embeddings().weight.clone()
            with torch.no_grad():
                policy.hf.get_input_embeddings().weight.add_(
                    0.05 * torch.randn(before.shape, generator=torch.Generator().manual_seed(version))
                )
            assert torch.equal(policy.hf.get_output_embeddings().weight, before) is not tied
            assert sync_gap(engine, policy, samples, version=version) < 1e-5
        if not tied:
            with torch.no_grad():
                policy.hf.get_output_embeddings().weight.mul_(1.5)
            assert sync_gap(engine, policy, samples, version=4) < 1e-5
    finally:
        engine.close()


def test_o03_a_head_of_its_own_in_a_tied_checkpoint_is_updated_too(
    tiny_model, image_store: ImageStore, samples: list[Sample], tmp_path: Path
) -> None:
    """Transformers and vLLM both take it from the checkpoint, whatever the configuration says."""
    save_policy(load_cpu_policy(tiny_model("qwen2_5_vl"), image_store), tmp_path / "model")
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    settings["tie_word_embeddings"] = settings["text_config"]["tie_word_embeddings"] = True
    (tmp_path / "model" / "config.json").write_text(json.dumps(settings))
    engine = ENGINES["vllm"](tmp_path / "model", image_store, 8)
    try:
        policy = load_cpu_policy(tmp_path / "model", image_store)
        assert any(name == "lm_head.weight" for name, _ in named_weights(policy))
        assert sync_gap(engine, perturb(policy), samples) < 1e-5
    finally:
        engine.close()


def test_o07_every_update_counts_whether_or_not_the_engine_slept(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample]
) -> None:
    for version in (1, 2, 3):
        perturb(actor, seed=version)
        if version == 2:
            engine.sleep()
        assert sync_gap(engine, actor, samples, version=version) < 1e-5
        assert engine.policy_version == version


def test_o01_greedy_after_an_update_equals_a_fresh_engine(
    engine: VllmRollout, actor: PolicyModel, image_store: ImageStore, samples: list[Sample], tmp_path: Path
) -> None:
    """The prompts and images are in every cache from before."""
    engine.generate(samples, params(8, 0.0), num_responses=1, seed=0, step=0)
    engine.sleep()
    engine.wake()
    engine.update_weights(named_weights(perturb(actor)), 1)
    save_policy(actor, tmp_path / "model")
    fresh = ENGINES["vllm"](tmp_path / "model", image_store, 64)
    try:
        expected = ids_of(fresh.generate(samples, params(8, 0.0), num_responses=1, seed=0, step=0))
    finally:
        fresh.close()
    assert ids_of(engine.generate(samples, params(8, 0.0), num_responses=1, seed=0, step=0)) == expected


def test_o02_nothing_is_sampled_between_a_deep_sleep_and_the_next_update(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is real; that it forgot its weights is played, since no CPU can."""

    class Memory:
        def __getattr__(self, name: str):
            return lambda **_: True

    monkeypatch.setattr(engine, "_sleeper", VllmSleeper(Memory(), 2))
    engine.sleep()
    assert engine.needs_weights
    with pytest.raises(ModelError, match=r"gave its weights away when it went to sleep.*call update_weights first"):
        engine.generate(samples[:1], params(4), num_responses=1, seed=0, step=0)
    engine.wake()
    with pytest.raises(ModelError, match=r"gave its weights away"):
        engine.generate(samples[:1], params(4), num_responses=1, seed=0, step=0)
    engine.update_weights(named_weights(actor), 1)
    assert not engine.needs_weights
    groups = engine.generate(samples[:1], params(4), num_responses=1, seed=0, step=0)
    assert view_of_actor(actor, groups, 1.0).largest_gap < 1e-5


def without(weights: Iterator[tuple[str, Tensor]], name: str) -> Iterator[tuple[str, Tensor]]:
    return ((other, weight) for other, weight in weights if other != name)


def test_weights_that_do_not_fit_are_named_and_stop_the_engine_until_a_whole_update(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample]
) -> None:
    names = [name for name, _ in named_weights(actor)]
    query = next(name for name in names if name.endswith("layers.0.self_attn.q_proj.weight"))
    cases = [
        (lambda: without(named_weights(actor), query), rf"1 missing .{query}"),
        (lambda: iter([*named_weights(actor), ("other.weight", torch.zeros(2))]), r"1 unknown .other.weight"),
        (
            lambda: ((name, weight[:-1] if name == query else weight) for name, weight in named_weights(actor)),
            rf"1 of another shape .{query} .127, 128. for .128, 128.",
        ),
    ]
    for make, message in cases:
        with pytest.raises(ModelError, match=message):
            engine.update_weights(make(), 7)
        assert engine.needs_weights
        with pytest.raises(ModelError, match=r"its last weight update failed half-way"):
            engine.generate(samples[:1], params(4), num_responses=1, seed=0, step=0)
    assert sync_gap(engine, perturb(actor), samples, version=8) < 1e-5


def test_an_update_that_breaks_off_leaves_nothing_of_it_in_the_next(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample]
) -> None:
    def breaking() -> Iterator[tuple[str, Tensor]]:
        for place, (name, weight) in enumerate(named_weights(actor)):
            if place == 7:
                raise RuntimeError("the sender died")
            yield name, weight * 3

    with pytest.raises(RuntimeError, match=r"the sender died"):
        engine.update_weights(breaking(), 1)
    assert engine.needs_weights
    assert sync_gap(engine, perturb(actor), samples, version=2) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_of_another_precision_are_taken_in_the_engines(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample], dtype: torch.dtype
) -> None:
    engine.update_weights(((name, weight.to(dtype)) for name, weight in named_weights(actor)), 1)
    with torch.no_grad():
        for weight in actor.hf.parameters():
            weight.copy_(weight.to(dtype))
    groups = engine.generate(samples, params(12), num_responses=2, seed=0, step=1)
    assert view_of_actor(actor, groups, 1.0).largest_gap < 1e-5


def test_a_prompt_that_vllm_would_read_otherwise_is_refused(
    engine: VllmRollout, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's processor resizes by itself: to 200 pixels a side for an image that the actor reads in 56 x 56."""
    wider = {"size": {"shortest_edge": 40_000, "longest_edge": 90_000}}
    monkeypatch.setattr(vllm_prompts, "AS_IT_IS", wider)
    with pytest.raises(
        ModelError, match=r"sample sample-1: vllm reads another prompt than the actor: .* first different"
    ):
        engine.generate(samples[1:2], params(4), num_responses=1, seed=0, step=0)
    monkeypatch.undo()
    assert engine.generate(samples[1:2], params(4), num_responses=1, seed=0, step=0)


def test_o16_a_prompt_beyond_the_room_is_refused_with_both_numbers(engine: VllmRollout, samples: list[Sample]) -> None:
    two = samples[2].messages[0].content
    many = Sample("many", (Message("user", (*two, *two)),))
    with pytest.raises(
        ConfigError, match=r"sample many: its prompt has 4 images and the rollout engine was built for 2"
    ):
        engine.generate([many], params(4), num_responses=1, seed=0, step=0)
    long = Sample("long", (Message("user", (TextPart("one two three " * 200),)),))
    with pytest.raises(ConfigError, match=r"sample long: its prompt has \d+ tokens .* was built for 464 in all"):
        engine.generate([long], params(4), num_responses=1, seed=0, step=0)


def test_an_error_while_sampling_leaves_no_request_behind(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample]
) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate(samples, params(16), num_responses=8, seed=0, step=0, on_group=stop)
    groups = engine.generate(samples, params(16), num_responses=2, seed=0, step=0)
    assert view_of_actor(actor, groups, 1.0).largest_gap < 1e-5


def test_the_process_is_afterwards_as_it_was(folder: Path, image_store: ImageStore) -> None:
    """Random numbers, the environment of child processes, threads; and torch.distributed once no engine is left."""
    config = vllm_config(folder)
    prompts = load_prompts(str(folder), config.data.image, store=image_store)
    vllm_process.import_vllm()
    before = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    expected = (torch.rand(1).item(), np.random.random(), random.random())
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    threads = torch.get_num_threads()
    engine = build_vllm_rollout(config, prompts, ROOMY, model_folder=folder)
    assert (torch.rand(1).item(), np.random.random(), random.random()) == expected
    assert {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")} == before
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    engine.close()
    engine.close()


def test_objects_of_other_libraries_that_may_not_be_looked_at_do_no_harm(
    folder: Path, image_store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flask's request is such a one: a program may serve pages and sample in one process."""
    from werkzeug.local import LocalProxy

    def look() -> None:
        raise RuntimeError("working outside of a request")

    monkeypatch.setattr("mmrl.errors.request", LocalProxy(look), raising=False)
    config = vllm_config(folder)
    prompts = load_prompts(str(folder), config.data.image, store=image_store)
    build_vllm_rollout(config, prompts, ROOMY, model_folder=folder).close()


def test_sampling_in_bfloat16_agrees_with_an_actor_in_bfloat16_to_its_rounding(
    folder: Path, image_store: ImageStore, samples: list[Sample]
) -> None:
    config = vllm_config(folder)
    config = config.model_copy(update={"model": config.model.model_copy(update={"dtype": "bfloat16"})})
    prompts = load_prompts(str(folder), config.data.image, store=image_store)
    engine = build_vllm_rollout(config, prompts, ROOMY, model_folder=folder)
    try:
        groups = engine.generate(samples, params(16), num_responses=4, seed=0, step=0)
        view = view_of_actor(load_cpu_policy(folder, image_store), groups, 1.0)
        assert 1e-5 < view.largest_gap < 0.5
    finally:
        engine.close()


def test_tensor_parallel_needs_processes(folder: Path, image_store: ImageStore) -> None:
    config = vllm_config(folder, tensor_parallel=2)
    prompts = load_prompts(str(folder), config.data.image, store=image_store)
    with pytest.raises(ConfigError, match=r"2 processes share an engine, and there is one; use placement"):
        build_vllm_rollout(config, prompts, ROOMY, model_folder=folder)
    config = vllm_config(folder)
    with pytest.raises(ConfigError, match=r"torch.distributed is .*initialised, and not set are: RANK, WORLD_SIZE"):
        build_vllm_rollout(config, prompts, ROOMY, model_folder=folder, distributed=True)
