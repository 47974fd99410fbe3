"""Builds the rollout engine `vllm`, alone in a process or as one rank's share of a torch.distributed group."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from mmrl.config import RunConfig
from mmrl.engines import vllm_process
from mmrl.engines.rollout_needs import RolloutNeeds, needs_of
from mmrl.engines.rollout_vllm import VllmRollout
from mmrl.engines.vllm_adapter import VllmAdapter, adapter_arguments
from mmrl.engines.vllm_plan import CPU_BLOCK_TOKENS, EnginePlan, plan_engine
from mmrl.engines.vllm_sleep import make_sleeper
from mmrl.errors import ConfigError
from mmrl.models.loading import skeleton_with
from mmrl.models.policy import PolicyModel
from mmrl.models.processing import PromptProcessor
from mmrl.types import Sample

_PROCESSED_IMAGES_GIB = 1.0
_RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def build_vllm_rollout(
    config: RunConfig,
    prompts: PromptProcessor,
    needs: RolloutNeeds,
    *,
    model_folder: Path | str,
    distributed: bool = False,
    policy_version: int = 0,
) -> VllmRollout:
    """An engine with the weights of `model_folder`, whose prompts are made by `prompts`.

    needs: what the data asks for. distributed: every rank of the initialised torch.distributed group calls this, with
    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set; `rollout.tensor_parallel` ranks in a row then share
    one engine, get the same samples and give the same responses.
    Raises ConfigError where vLLM is missing or a size is too small for the data.
    """
    vllm_process.import_vllm()
    check_ranks(config, distributed=distributed)
    lora = config.model.lora if config.model.lora is not None and config.model.lora.sync == "adapter" else None
    settings = config.model.model_copy(update={"path": str(model_folder), "lora": None})
    skeleton = skeleton_with(settings, prompts)
    adapter = None
    if lora is not None:
        adapter = VllmAdapter(skeleton_with(settings.model_copy(update={"lora": lora}), prompts))
    on_cpu = vllm_process.on_cpu()
    plan = plan_engine(
        config.rollout,
        needs,
        skeleton.hf.config,
        dtype=config.model.dtype,
        on_cpu=on_cpu,
        sees_images=prompts.images is not None,
    )
    arguments = vllm_arguments(
        config, plan, prompts, model_folder=str(model_folder), on_cpu=on_cpu, distributed=distributed
    )
    if lora is not None:
        arguments |= adapter_arguments(lora)
    llm = vllm_process.start(arguments)
    sleeper = make_sleeper(llm, config.rollout, brings_all=lora is None)
    return VllmRollout(llm, skeleton, plan, sleeper, policy_version=policy_version, adapter=adapter)


def build(
    config: RunConfig, policy: PolicyModel, samples: Sequence[Sample], *, model_folder: Path | str
) -> VllmRollout:
    """For `engines.registry`: an engine beside the actor in one process, with the weights that the actor began with."""
    needs = needs_of(samples, policy.prompts, config)
    return build_vllm_rollout(config, policy.prompts, needs, model_folder=model_folder)


def check_ranks(config: RunConfig, *, distributed: bool) -> None:
    """Raises ConfigError where the processes cannot be divided into engines."""
    size = config.rollout.tensor_parallel
    if not distributed:
        if size > 1:
            raise ConfigError(
                f"rollout.tensor_parallel: {size} processes share an engine, and there is one; use placement.executor: "
                "ray with as many workers, or tensor_parallel: 1"
            )
        return
    lacking = [
        name for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ
    ]
    if lacking or not dist.is_initialized():
        raise ConfigError(
            "rollout engine 'vllm' was asked to work in a group of processes, and there is none here: "
            f"torch.distributed is {'' if dist.is_initialized() else 'not '}initialised, and not set are: "
            f"{', '.join(lacking) or 'none'}"
        )
    world = dist.get_world_size()
    if world % size:
        raise ConfigError(
            f"rollout.tensor_parallel: {size} does not divide the {world} workers of the rollout's pool; allowed are "
            f"{', '.join(str(one) for one in range(1, world + 1) if world % one == 0)}"
        )


def launcher_arguments(tensor_parallel: int) -> dict[str, Any]:
    """Of `vllm.LLM` in processes that were started as ranks, each of which sees its own GPU alone.

    vLLM's own all-reduce asks which GPUs can read each other by their numbers, and knows of one here: it would end with
    KeyError '0->1'. NCCL takes its place.
    """
    arguments: dict[str, Any] = {"distributed_executor_backend": "external_launcher"}
    return arguments | ({"disable_custom_all_reduce": True} if tensor_parallel > 1 else {})


def vllm_arguments(
    config: RunConfig, plan: EnginePlan, prompts: PromptProcessor, *, model_folder: str, on_cpu: bool, distributed: bool
) -> dict[str, Any]:
    """Of `vllm.LLM`. Whatever a checkpoint's generation_config.json says, nothing of it counts."""
    from mmrl.engines.vllm_sampler import BANNED, DrawTokens

    rollout = config.rollout
    arguments: dict[str, Any] = {
        "model": model_folder,
        "dtype": config.model.dtype,
        "seed": 0,
        "generation_config": "vllm",
        "logits_processors": [DrawTokens],
        "logprobs_mode": "processed_logits",
        "additional_config": {BANNED: list(prompts.banned_token_ids)},
        "max_model_len": plan.max_model_len,
        "max_num_seqs": plan.max_rows,
        "max_num_batched_tokens": plan.max_batch_tokens,
        "enable_prefix_caching": True,
        "async_scheduling": False,
        "enforce_eager": on_cpu or rollout.enforce_eager,
        "enable_sleep_mode": vllm_process.can_sleep() and rollout.sleep != "never",
        "tensor_parallel_size": rollout.tensor_parallel,
    }
    if on_cpu:
        arguments["block_size"] = CPU_BLOCK_TOKENS
    if plan.kv_cache_bytes is None:
        arguments["gpu_memory_utilization"] = rollout.gpu_memory_utilization
    else:
        arguments["kv_cache_memory_bytes"] = plan.kv_cache_bytes
    if distributed:
        arguments |= launcher_arguments(rollout.tensor_parallel)
    if prompts.images is not None:
        limits = prompts.images.limits
        largest = max(plan.max_image_pixels, limits.factor**2)
        arguments |= {
            "limit_mm_per_prompt": {"image": plan.max_images, "video": 0},
            "mm_processor_kwargs": {"size": {"shortest_edge": limits.factor**2, "longest_edge": largest}},
            "mm_processor_cache_gb": _PROCESSED_IMAGES_GIB,
        }
    return arguments
