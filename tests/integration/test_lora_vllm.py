"""An adapter in vLLM: every version is the one that answers, and nothing of the one before is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models_builders import mixed_samples

from mmrl.config import RunConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.engines.base import SamplingParams
from mmrl.engines.rollout_hf import HfRollout
from mmrl.engines.rollout_needs import needs_of
from mmrl.engines.vllm_build import build_vllm_rollout
from mmrl.errors import ModelError
from mmrl.models.lora import adapter_weights
from mmrl.models.policy import load_policy

PARAMS = SamplingParams(6, temperature=1.0)


def redraw(policy: Any, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.hf.named_parameters():
            if ".lora_B." in name:
                weight.copy_(torch.randn_like(weight) * 0.2)


@pytest.mark.vllm
def test_o05_an_adapter_that_comes_again_is_the_new_one_and_no_cache_outlives_the_old(
    tiny_model: Any, image_store: Any, pictures: Any
) -> None:
    """A, the same prompts, then B: B's log-probabilities, on prompts that were cached under A."""
    lora = {"rank": 4, "alpha": 8.0, "sync": "adapter"}
    model = {"path": str(tiny_model()), "dtype": "float32", "device": "cpu", "lora": lora}
    config = RunConfig.model_validate(
        {
            "name": "n",
            "model": model,
            "data": {"train": "d"},
            "reward": [{"type": "exact"}],
            "rollout": {"engine": "vllm", "max_response_tokens": 6, "max_batch_rows": 16},
        }
    )
    policy = load_policy(config.model, ImageConfig(), store=image_store)
    samples = mixed_samples(pictures)
    needs = needs_of(samples, policy.prompts, config)
    engine = build_vllm_rollout(config, policy.prompts, needs, model_folder=Path(config.model.path))
    own = HfRollout(policy, config.rollout)
    seen = set()
    try:
        for version in range(4):
            if version:
                redraw(policy, seed=version % 3)  # version 3 is the first one again
                engine.update_weights(adapter_weights(policy.hf, policy.device), 7)  # always under one version number
            theirs, ours = (each.generate(samples, PARAMS, num_responses=2, seed=5, step=1) for each in (engine, own))
            for group, same in zip(theirs, ours, strict=True):
                for rollout, wanted in zip(group.rollouts, same.rollouts, strict=True):
                    assert rollout.token_ids == wanted.token_ids
                    assert rollout.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)
            seen.add(tuple(rollout.logprobs for group in theirs for rollout in group.rollouts))
        assert len(seen) >= 3
        assert engine.policy_version == 7
        with pytest.raises(ModelError, match=r"weight update: 1 missing \(base_model"):
            engine.update_weights(iter(list(adapter_weights(policy.hf, policy.device))[1:]), 8)
        assert engine.needs_weights
        engine.update_weights(adapter_weights(policy.hf, policy.device), 9)
        assert not engine.needs_weights
    finally:
        engine.close()


def test_an_engine_for_whole_weights_knows_nothing_of_adapters(tiny_model: Any) -> None:
    from mmrl.config.lora import LoraConfig
    from mmrl.engines.vllm_adapter import adapter_arguments

    assert adapter_arguments(LoraConfig(rank=4))["max_lora_rank"] == 8
    assert adapter_arguments(LoraConfig(rank=100))["max_lora_rank"] == 128
    assert ModelConfig(path=str(tiny_model())).lora is None
