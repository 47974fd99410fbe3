"""Config of how models lie on the ranks that train them."""

from __future__ import annotations

from pydantic import Field

from mmrl.config.base import ConfigModel


class FsdpConfig(ConfigModel):
    """Sharding over ranks (FSDP2) of actor, critic and reference; a run in one process has nothing to shard."""

    offload: bool = False
    """Keep the shards of weights, gradients and optimiser in CPU memory and bring only what is being computed to the
    GPU: room for larger models, slower steps."""
    reshard_after_forward: bool = True
    """Free a layer's whole weights after its forward pass and gather them again going backward; false gathers once a
    pass and needs room for the whole model in the precision of the passes."""
    shard_size: int | None = Field(None, ge=1)
    """Ranks over which one copy of the weights is divided (hybrid sharding), such as the GPUs of a node; it must divide
    the number of ranks. Null divides one copy over all of them."""


class ActorConfig(ConfigModel):
    """How the models that are trained, and the reference, are held."""

    fsdp: FsdpConfig = FsdpConfig()
    """Sharding over the ranks of a pool."""
