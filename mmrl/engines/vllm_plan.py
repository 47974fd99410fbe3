"""How much room vLLM makes, from the data and the config, and the errors of a config that leaves too little.

vLLM fixes its sizes when it starts: how long a sequence may be, how many images a prompt may hold, how many tokens one
pass takes and how much memory the cache has. What is too small would end a run at the first row that needs more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mmrl.config import RunConfig
from mmrl.config.rollout import RolloutConfig
from mmrl.engines.rollout_needs import RolloutNeeds, needs_of
from mmrl.errors import ConfigError
from mmrl.models.policy import PolicyModel
from mmrl.types import Sample

BATCH_TOKENS = 8192
"""Tokens of one forward pass where nothing asks for more."""

CPU_BLOCK_TOKENS = 32
"""Tokens that the CPU's cache keeps and shares as one; its own 128 would share nothing of a short prompt."""

_CPU_CACHE_BYTES = 4 << 30
_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class EnginePlan:
    """max_model_len: tokens of a prompt with its response. max_rows: responses decoded at once. max_batch_tokens: of
    one pass, and of image features kept. max_images: in one prompt; max_image_pixels: of one image.
    kv_cache_bytes: None where vLLM takes what its share of the GPU leaves."""

    max_model_len: int
    max_rows: int
    max_batch_tokens: int
    max_images: int
    max_image_pixels: int
    kv_cache_bytes: int | None


def plan_engine(
    config: RolloutConfig, needs: RolloutNeeds, hf_config: Any, *, dtype: str, on_cpu: bool, sees_images: bool
) -> EnginePlan:
    """hf_config: the model's configuration.

    Raises ConfigError with both numbers where the model or a setting has less room than the data needs.
    """
    length = _max_model_len(config, needs, hf_config)
    return EnginePlan(
        max_model_len=length,
        max_rows=config.max_batch_rows,
        max_batch_tokens=_max_batch_tokens(config, needs),
        # Without images vLLM leaves the vision tower out, and its weights could not be updated.
        max_images=max(1, needs.max_images) if sees_images else 0,
        max_image_pixels=needs.max_image_pixels,
        kv_cache_bytes=_kv_cache_bytes(config, length, hf_config, dtype=dtype, on_cpu=on_cpu),
    )


def check_room(config: RunConfig, policy: PolicyModel, samples: Iterable[Sample], *, on_cpu: bool) -> EnginePlan:
    """What `build_vllm_rollout` would plan for these samples, without vLLM; raises the same errors.

    policy: with or without its weights.
    """
    return plan_engine(
        config.rollout,
        needs_of(samples, policy.prompts, config),
        policy.hf.config,
        dtype=config.model.dtype,
        on_cpu=on_cpu,
        sees_images=policy.prompts.images is not None,
    )


def _max_model_len(config: RolloutConfig, needs: RolloutNeeds, hf_config: Any) -> int:
    need = (
        f"the longest prompt has {needs.max_prompt_tokens} tokens with its images expanded and a response up to "
        f"{needs.max_response_tokens}, {needs.max_tokens} in all"
    )
    limit = hf_config.get_text_config().max_position_embeddings
    if needs.max_tokens > limit:
        raise ConfigError(
            f"rollout.max_response_tokens: {need}, and the model reads at most {limit} (max_position_embeddings); "
            "lower it, data.max_prompt_tokens or data.image.max_pixels"
        )
    if config.max_model_len is None:
        return needs.max_tokens
    if config.max_model_len < needs.max_tokens:
        raise ConfigError(
            f"rollout.max_model_len: {need}, and it makes room for {config.max_model_len}; raise it to "
            f"{needs.max_tokens} or leave it out, or lower rollout.max_response_tokens or data.max_prompt_tokens"
        )
    if config.max_model_len > limit:
        raise ConfigError(
            f"rollout.max_model_len: {config.max_model_len} is more than the model reads, {limit} "
            f"(max_position_embeddings); lower it to at most that, or leave it out: the data needs {needs.max_tokens}"
        )
    return config.max_model_len


def _max_batch_tokens(config: RolloutConfig, needs: RolloutNeeds) -> int:
    if config.max_batch_tokens is None:
        return max(BATCH_TOKENS, needs.max_image_tokens, config.max_batch_rows)
    if config.max_batch_tokens < needs.max_image_tokens:
        raise ConfigError(
            f"rollout.max_batch_tokens: the largest image of the data takes {needs.max_image_tokens} tokens, and "
            f"vllm's encoder cache would hold {config.max_batch_tokens}; raise it to at least "
            f"{needs.max_image_tokens}, leave it out, or lower data.image.max_pixels"
        )
    if config.max_batch_tokens < config.max_batch_rows:
        raise ConfigError(
            f"rollout.max_batch_tokens: {config.max_batch_tokens} is below rollout.max_batch_rows "
            f"{config.max_batch_rows}, and every row takes a token of a pass; raise it or lower the rows"
        )
    return config.max_batch_tokens


def _kv_cache_bytes(config: RolloutConfig, length: int, hf_config: Any, *, dtype: str, on_cpu: bool) -> int | None:
    """A cache that holds one whole sequence is the least that any engine can work with."""
    blocks = -(-length // CPU_BLOCK_TOKENS) + 1
    one = blocks * CPU_BLOCK_TOKENS * _token_bytes(hf_config, dtype, config.tensor_parallel)
    if config.kv_cache_gib is not None:
        wanted = int(config.kv_cache_gib * 2**30)
        if wanted < one:
            raise ConfigError(
                f"rollout.kv_cache_gib: {config.kv_cache_gib:g} holds not even one prompt with its response "
                f"({length} tokens take {one / 2**30:.3g} GiB); raise it to at least that"
            )
        return wanted
    if not on_cpu:
        return None
    return max(one, min(_CPU_CACHE_BYTES, one * config.max_batch_rows))


def _token_bytes(hf_config: Any, dtype: str, tensor_parallel: int) -> int:
    """Keys and values of one token in all layers, in one of the processes."""
    text = hf_config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return 2 * text.num_hidden_layers * max(1, heads // tensor_parallel) * size * _BYTES[dtype]
