"""A whole tensor divided as another one is."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor

from mmrl.models.lockstep import rows_of


def sharded_like(weight: Tensor, full: Tensor) -> Tensor:
    """This rank's part of `full`, as a tensor that is divided as `weight` of the same shape is."""
    if not isinstance(weight, DTensor):
        return full
    return DTensor.from_local(
        full[rows_of(weight)].clone(),
        weight.device_mesh,
        weight.placements,
        run_check=False,
        shape=full.shape,
        stride=full.stride(),
    )
