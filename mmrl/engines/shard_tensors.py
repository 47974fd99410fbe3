"""Whole tensors and the part of them that a rank keeps."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor

from mmrl.models.lockstep import local_part


def rows_of(weight: Tensor) -> slice:
    """The rows of a sharded tensor that this rank keeps; all of a whole one.

    Shards are divided along the first axis as by `torch.chunk`, over the last axis of the mesh.
    """
    if not isinstance(weight, DTensor):
        return slice(None)
    mesh = weight.device_mesh
    chunk = -(-weight.shape[0] // mesh.size(mesh.ndim - 1))
    start = min(chunk * mesh.get_local_rank(mesh.ndim - 1), weight.shape[0])
    return slice(start, start + local_part(weight).shape[0])


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
