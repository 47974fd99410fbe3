"""How responses are sampled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel

_VLLM_ONLY = (
    "tensor_parallel",
    "gpu_memory_utilization",
    "kv_cache_gib",
    "max_model_len",
    "max_batch_tokens",
    "enforce_eager",
    "sleep",
)


class RolloutConfig(ConfigModel):
    engine: Literal["hf", "vllm"] = "hf"
    """What samples the responses: hf is the model itself over a shared prompt cache; vllm is an engine of its own
    whose weights are updated after every step."""
    prompts_per_step: int = Field(128, ge=1)
    """Prompts sampled in each step; each gets algorithm.group_size responses."""
    max_response_tokens: int = Field(2048, ge=1)
    """Longest response; a longer one is cut and has finish reason 'length'."""
    temperature: float = Field(1.0, gt=0)
    """Sampling temperature; the log-probabilities of training are taken at the same temperature."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample only from the smallest set of tokens with this probability; 1 is off."""
    top_k: int = Field(0, ge=0)
    """Sample only from this many most likely tokens; 0 is off."""
    stop: tuple[str, ...] = ()
    """A response ends once its text contains one of these; the ids up to there are kept."""
    max_batch_rows: int = Field(256, ge=1)
    """Responses decoded at once."""
    tensor_parallel: int = Field(1, ge=1)
    """Processes that share one vllm engine, each with a part of every layer; it divides the workers of the rollout's
    pool."""
    gpu_memory_utilization: float = Field(0.5, gt=0, lt=1)
    """Share of each GPU's memory that vllm takes, weights and cache; the rest is the trainer's. Not used where
    kv_cache_gib is set."""
    kv_cache_gib: float | None = Field(None, gt=0)
    """Memory of vllm's key-value cache in GiB, in each process. Null takes what gpu_memory_utilization leaves on a GPU,
    and on the CPU what max_batch_rows responses need, up to 4."""
    max_model_len: int | None = Field(None, ge=1)
    """Longest prompt with its response that vllm makes room for, in tokens. Null takes the longest of the data."""
    max_batch_tokens: int | None = Field(None, ge=1)
    """Most tokens in one forward pass of vllm, and room for features of images. Null takes 8192, or the largest image's
    tokens if they are more."""
    enforce_eager: bool = False
    """Run vllm without CUDA graphs, which saves start-up time and memory; always so on the CPU."""
    sleep: Literal["auto", "never", "keep_weights", "discard_weights"] = "auto"
    """What vllm gives back while the trainer works on the same GPU: its cache, and its weights, which it keeps in the
    computer's memory (keep_weights) or takes anew with the next update (discard_weights). auto discards them where
    every update brings all of them; never gives nothing back. The CPU has no such mode."""

    @model_validator(mode="after")
    def _fits_engine(self) -> RolloutConfig:
        if self.engine == "vllm":
            return self
        foreign = sorted(self.changed & set(_VLLM_ONLY))
        if foreign:
            raise ValueError(
                f"{foreign[0]} is a setting of engine 'vllm' (got {getattr(self, foreign[0])!r} with engine "
                f"'{self.engine}'); leave it out, or set rollout.engine: vllm"
            )
        return self
