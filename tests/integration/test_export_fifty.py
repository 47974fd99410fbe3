"""An exported model gives the answers of training in transformers and in vLLM: 50 prompts with images and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learning import run_config
from transformers import AutoModelForImageTextToText

from mmrl.config import RunConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data import load_dataset
from mmrl.data.images import ImageStore
from mmrl.engines.base import SamplingParams
from mmrl.engines.rollout_hf import HfRollout
from mmrl.engines.rollout_needs import needs_of
from mmrl.engines.vllm_build import build_vllm_rollout
from mmrl.models.lora import adapter_state, load_adapter
from mmrl.models.policy import load_policy
from mmrl.runs.checkpoint_refs import resolve_model
from mmrl.runs.progress import make_progress
from mmrl.trainer import train
from mmrl.trainer.export import export_checkpoint
from mmrl.trainer.export_checks import generate_plainly
from mmrl.types import Message, Sample, TextPart

NUM_TOKENS = 8


def prompts() -> list[Sample]:
    """25 images of digits, and 25 questions in words, every fifth of these with a system line."""
    seen = list(load_dataset("digits-which@test"))[:25]
    written = []
    for index in range(25):
        system = (Message("system", (TextPart("Answer shortly."),)),) if index % 5 == 0 else ()
        text = f"What is {index} + {index * 3 % 7}? Put it in a box."
        written.append(Sample(f"text-{index}", (*system, Message("user", (TextPart(text),)))))
    return [*seen, *written]


@pytest.mark.vllm
@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 16.0}], ids=["whole", "lora"])
def test_fifty_greedy_answers_are_those_of_training_in_transformers_and_vllm(
    digits_home: Path, tmp_path: Path, lora: Any
) -> None:
    name = "lora" if lora else "whole"
    plain = run_config(digits_home / "base", "digits-which@train", steps=3, lr=2e-4 if lora else 1e-2).model_dump(
        mode="json"
    )
    plain["model"]["lora"] = lora
    plain["algorithm"]["group_size"] = 4
    plain["rollout"] |= {"prompts_per_step": 4, "max_response_tokens": NUM_TOKENS}
    plain["reward"] = [{"type": "length", "max_tokens": NUM_TOKENS}]
    config = RunConfig.model_validate(plain)
    train(config, run_dir=digits_home / "runs" / name, progress=make_progress("quiet"))
    ref = resolve_model(f"{name}@3")
    store, samples = ImageStore(), prompts()
    params = SamplingParams(NUM_TOKENS, temperature=0.0)
    # As in training: the base with the adapter beside it, where there is one.
    policy = load_policy(config.model if lora else ModelConfig(path=str(ref.model)), ImageConfig(), store=store)
    policy.dtype = torch.float32
    if lora:
        assert ref.checkpoint is not None
        load_adapter(policy.hf, ref.checkpoint / "adapter")
        assert any(
            float(weight.abs().max()) > 0 for name, weight in adapter_state(policy.hf).items() if "lora_B" in name
        )
    groups = HfRollout(policy, config.rollout).generate(samples, params, num_responses=1, seed=0, step=0)
    wanted = [group.rollouts[0].token_ids for group in groups]
    assert len(set(wanted)) > 3

    out = export_checkpoint(ref, tmp_path / "model")
    hf = AutoModelForImageTextToText.from_pretrained(out, dtype=torch.float32).eval()
    plainly = [tuple(generate_plainly(hf, policy.prompts, sample, num_tokens=NUM_TOKENS)) for sample in samples]
    assert plainly == wanted

    rollout = config.rollout.model_copy(update={"engine": "vllm", "max_response_tokens": NUM_TOKENS})
    served = config.model_copy(update={"rollout": rollout, "model": ModelConfig(path=str(out), dtype="float32")})
    engine = build_vllm_rollout(served, policy.prompts, needs_of(samples, policy.prompts, served), model_folder=out)
    try:
        groups = engine.generate(samples, params, num_responses=1, seed=0, step=0)
    finally:
        engine.close()
    assert [group.rollouts[0].token_ids for group in groups] == wanted
