"""The canary between vLLM and the actor: each way in which a sync can go wrong in silence stops the run, with words.

Everything is real but the fault: what mmrl does against it is taken out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from rollout_conformance import ENGINES, load_cpu_policy, make_samples, params, save_lively_model

from mmrl.batch import build_group_batch
from mmrl.config.run import CanaryConfig, OptimConfig, TrainConfig
from mmrl.data.images import ImageStore
from mmrl.engines import vllm_weights
from mmrl.engines.actor import HfActor
from mmrl.engines.canary import SyncGap, check, compare
from mmrl.engines.load_weights import WeightFaults
from mmrl.engines.rollout_vllm import VllmRollout
from mmrl.errors import RunFailedError
from mmrl.types import Sample

pytestmark = pytest.mark.vllm

CONFIG = CanaryConfig()


@pytest.fixture(scope="module")
def folder(tiny_model, image_store: ImageStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tied, so that the head can be left behind."""
    tied = tiny_model("qwen2_5_vl", tie_embeddings=True)
    return save_lively_model(tied, tmp_path_factory.mktemp("tied"), image_store)


@pytest.fixture(scope="module")
def engine(folder: Path, image_store: ImageStore) -> Iterator[VllmRollout]:
    engine = ENGINES["vllm"](folder, image_store, 64)
    assert isinstance(engine, VllmRollout)
    yield engine
    engine.close()


@pytest.fixture
def actor(folder: Path, image_store: ImageStore, engine: VllmRollout) -> HfActor:
    """At the weights that the checkpoint has, and the engine with it."""
    actor = actor_at(folder, image_store, 1.0)
    engine.update_weights(actor.weights(), 0)
    return actor


@pytest.fixture(scope="module")
def samples(pictures) -> list[Sample]:
    return make_samples(pictures)


def actor_at(folder: Path, store: ImageStore, temperature: float) -> HfActor:
    policy = load_cpu_policy(folder, store)
    policy.requires_grad_(True)
    return HfActor(policy, OptimConfig(), TrainConfig(micro_batch_tokens=1000), temperature=temperature, total_steps=1)


@torch.no_grad()
def move(actor: HfActor, chosen: Callable[[str], bool]) -> None:
    """As an update would: the chosen weights, by their names in the module."""
    draw = torch.Generator().manual_seed(1)
    for name, weight in actor.policy.hf.named_parameters():
        if chosen(name) and weight.ndim > 1:
            weight += 0.1 * weight.std() * torch.randn(weight.shape, generator=draw)


def gap_of(engine: VllmRollout, actor: HfActor, samples: list[Sample], temperature: float = 1.0) -> SyncGap:
    groups = engine.generate(samples, params(12, temperature), num_responses=4, seed=0, step=0)
    batch = build_group_batch(
        [actor.policy.prompts.prepare(group.sample) for group in groups], [group.rollouts for group in groups]
    )
    assert batch.sampler_logprobs is not None
    has_image = torch.tensor([bool(prompt.images) for prompt in batch.prompts])[batch.prompt_of_row]
    logprobs = actor.logprobs(batch).logprobs
    return compare(batch.sampler_logprobs, logprobs, batch.response_mask, has_image, gap=CONFIG.gap)


def test_nothing_is_said_while_all_is_right(engine: VllmRollout, actor: HfActor, samples: list[Sample]) -> None:
    for version in (1, 2):
        move(actor, lambda name: True)
        engine.update_weights(actor.weights(), version)
        gap = gap_of(engine, actor, samples)
        check(gap, CONFIG, "float32")
        assert gap.overall is not None
        assert gap.overall.logprob_gap_max < 1e-5


def test_a_prefix_cache_left_stale_is_caught(
    engine: VllmRollout, actor: HfActor, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [sample for sample in samples if not sample.images]
    gap_of(engine, actor, texts)
    monkeypatch.setattr(vllm_weights, "drop_caches", lambda llm: None)
    move(actor, lambda name: True)
    engine.update_weights(actor.weights(), 1)
    with pytest.raises(RunFailedError, match="an old prefix or key-value cache after a sync"):
        check(gap_of(engine, actor, texts), CONFIG, "float32")


def test_features_of_images_left_stale_are_caught_on_prompts_with_images(
    engine: VllmRollout, actor: HfActor, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vision tower moves; keys and values are dropped, but not the features that both halves of vLLM keep."""
    gap_of(engine, actor, samples)
    runner = engine._llm.collective_rpc(lambda worker: worker.model_runner)[0]
    monkeypatch.setattr(vllm_weights, "drop_caches", lambda llm: llm.llm_engine.reset_prefix_cache())
    monkeypatch.setattr(runner, "reset_encoder_cache", lambda: None)
    move(actor, lambda name: "visual" in name)
    engine.update_weights(actor.weights(), 1)
    gap = gap_of(engine, actor, samples)
    monkeypatch.undo()
    engine._llm.llm_engine.reset_encoder_cache()
    assert gap.text is not None
    assert gap.text.logprob_gap_max < 1e-5
    with pytest.raises(RunFailedError, match=r"disagree on prompts with images.*an old cache of image features"):
        check(gap, CONFIG, "float32")


def test_a_tied_head_left_stale_is_caught(
    engine: VllmRollout, actor: HfActor, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_weights, "_pack_tied_heads", lambda model: None)
    move(actor, lambda name: "embed_tokens" in name)
    engine.update_weights(actor.weights(), 1)
    with pytest.raises(RunFailedError, match="a tied output head that still multiplies by the old embedding"):
        check(gap_of(engine, actor, samples), CONFIG, "float32")


def test_a_tensor_that_an_update_skipped_is_caught(
    engine: VllmRollout, actor: HfActor, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The update itself would name it; here it does not look."""
    monkeypatch.setattr(WeightFaults, "raise_if_any", lambda self: None)
    reload = vllm_weights._reload
    monkeypatch.setattr(vllm_weights, "_reload", lambda worker, weights: reload(worker, weights)[:0])
    move(actor, lambda name: True)
    skipped = "layers.1.mlp.down_proj.weight"
    kept = ((name, weight) for name, weight in actor.weights() if not name.endswith(skipped))
    engine.update_weights(kept, 1)
    with pytest.raises(RunFailedError, match="a tensor that an update skipped"):
        check(gap_of(engine, actor, samples), CONFIG, "float32")


@pytest.mark.parametrize(("sampled", "trained"), [(0.6, 1.0), (1.0, 0.7), (1.3, 1.0)])
def test_a_temperature_left_out_on_one_side_is_caught_and_named_first(
    engine: VllmRollout, folder: Path, image_store: ImageStore, samples: list[Sample], sampled: float, trained: float
) -> None:
    actor = actor_at(folder, image_store, trained)
    engine.update_weights(actor.weights(), 0)
    with pytest.raises(RunFailedError, match="What may be wrong: first of all a temperature that is left out"):
        check(gap_of(engine, actor, samples, sampled), CONFIG, "float32")
