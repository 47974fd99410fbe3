"""vLLM on a GPU: sleep, updates from the device, and the versions that mmrl is written for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch
from rollout_conformance import (
    ROOMY,
    ids_of,
    load_cpu_policy,
    make_samples,
    params,
    save_lively_model,
    view_of_actor,
    vllm_config,
)

from mmrl.data.images import ImageStore
from mmrl.engines.rollout_vllm import VllmRollout
from mmrl.engines.vllm_build import build_vllm_rollout
from mmrl.errors import ModelError
from mmrl.models.policy import PolicyModel, named_weights
from mmrl.types import Sample

pytestmark = [pytest.mark.gpu, pytest.mark.vllm]


@pytest.fixture(scope="module")
def folder(tiny_model, image_store: ImageStore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_lively_model(tiny_model("qwen2_5_vl"), tmp_path_factory.mktemp("lively"), image_store)


@pytest.fixture(scope="module")
def samples(pictures) -> list[Sample]:
    return make_samples(pictures)


@pytest.fixture
def actor(folder: Path, image_store: ImageStore) -> PolicyModel:
    policy = load_cpu_policy(folder, image_store)
    policy.to("cuda")
    return policy


@pytest.fixture(params=["keep_weights", "discard_weights"])
def engine(request, folder: Path, image_store: ImageStore, actor: PolicyModel) -> Iterator[VllmRollout]:
    """kv_cache_gib is what there is to give back. One engine at a time: vLLM's sleep allows no second one."""
    config = vllm_config(folder, sleep=request.param, kv_cache_gib=2)
    engine = build_vllm_rollout(config, actor.prompts, ROOMY, model_folder=folder)
    yield engine
    engine.close()


def free_bytes() -> int:
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def test_o01_o02_sleep_gives_memory_back_and_what_was_cached_does_not_survive_it(
    engine: VllmRollout, actor: PolicyModel, samples: list[Sample]
) -> None:
    before = ids_of(engine.generate(samples, params(12, 0.0), num_responses=1, seed=0, step=0))
    awake = free_bytes()
    engine.sleep()
    assert free_bytes() - awake > 1 << 30
    if engine.needs_weights:
        with pytest.raises(ModelError, match="gave its weights away"):
            engine.generate(samples, params(12), num_responses=1, seed=0, step=0)
    else:
        assert ids_of(engine.generate(samples, params(12, 0.0), num_responses=1, seed=0, step=0)) == before
        engine.sleep()
    with torch.no_grad():
        for weight in actor.hf.parameters():
            weight += 0.05 * weight.std().nan_to_num() * torch.randn_like(weight)
    engine.update_weights(named_weights(actor), 1)
    groups = engine.generate(samples, params(12), num_responses=2, seed=0, step=1)
    assert view_of_actor(actor, groups, 1.0).largest_gap < 1e-3


@pytest.mark.parametrize("version", ["0.32", "0.33"])
def test_o08_a_version_of_vllm_agrees_with_the_actor_through_an_update(
    version: str, folder: Path, image_store: ImageStore, actor: PolicyModel, samples: list[Sample]
) -> None:
    """`make test-gpu` with each version installed runs one of the two."""
    if not metadata.version("vllm").startswith(version):
        pytest.skip(f"vllm {metadata.version('vllm')} is installed")
    engine = build_vllm_rollout(vllm_config(folder), actor.prompts, ROOMY, model_folder=folder)
    try:
        for step, temperature in enumerate((0.6, 1.0, 1.3)):
            engine.update_weights(named_weights(actor), step)
            groups = engine.generate(samples, params(16, temperature, 0.9, 40), num_responses=4, seed=0, step=step)
            assert view_of_actor(actor, groups, temperature).largest_gap < 1e-3
    finally:
        engine.close()
