"""Config of kind `serve`: a checkpoint behind vLLM's OpenAI-compatible server, as a job that ends when nobody asks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel, PathText


class ServedModelConfig(ConfigModel):
    path: PathText
    """The checkpoint, as RUN, RUN@STEP, RUN@best or its folder, or a model's folder."""
    dtype: Literal["auto", "bfloat16", "float32", "float16"] = "auto"
    """Precision; auto is the model's own on a GPU and float32 on a CPU."""


class ServeSettings(ConfigModel):
    """Where the server listens, what it may take, and when it ends."""

    host: str = Field("127.0.0.1", min_length=1)
    """Address that it listens on; `worker` is the address under which others reach the worker's machine."""
    port: int = Field(0, ge=0, le=65535)
    """Port; 0 takes a free one."""
    idle_s: float = Field(1800.0, gt=0)
    """Seconds without a request after which it ends by itself."""
    wait_s: float = Field(900.0, gt=0)
    """Seconds in which it must answer."""
    max_model_len: int | None = Field(None, ge=16)
    """Most tokens of a prompt and its response; null takes what the model allows."""
    max_images: int = Field(8, ge=0)
    """Most images in one request."""
    kv_cache_gb: float = Field(1.0, gt=0)
    """Memory for keys and values on a CPU, in GB; a GPU gives what memory_share leaves."""
    memory_share: float = Field(0.9, gt=0, le=1)
    """Share of the GPU's memory."""


class ServeConfig(ConfigModel):
    name: str = Field(..., min_length=1)
    """Name of the run, for people."""
    kind: Literal["serve"] = "serve"
    """A checkpoint is served for chats until it is stopped or idle."""
    model: ServedModelConfig
    """What is served."""
    serve: ServeSettings = ServeSettings()
    """Where the server listens, what it may take, and when it ends."""
