"""Ranks that hold a model in shards: each must make the same calls of its parts in the same order.

A part's weights are gathered from all ranks whenever it is called, and its gradients are added up over all of them in
the backward pass. A rank that left a call out, because it has fewer rows, no image, or only responses of one token,
would leave the others waiting. `PolicyModel` therefore makes every call where it has a `Lockstep`, on something of no
weight where a rank has nothing of its own, and engines give every rank as many passes as the busiest one has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from mmrl.batch import GroupBatch, PreparedPrompt, TokenStats

Told = TypeVar("Told")


@dataclass(frozen=True, eq=False)
class Lockstep:
    """How the passes of one sharded model are kept alike on all ranks.

    group: over which ranks tell each other what they have, in CPU memory; `num_ranks` of them.
    num_replicas: whole copies of the weights that lie on them together.
    root: the module that was sharded last, by whose forward pass every other one is called.
    runs_tower: whether the vision tower is sharded, so that every pass has to run it.
    image_weights: trained weights that only a pass with images has a gradient for.
    filler: what a rank forwards that has nothing left to forward; nothing in it is sampled.
    """

    group: Any
    num_ranks: int
    num_replicas: int
    root: nn.Module
    runs_tower: bool
    image_weights: tuple[nn.Parameter, ...]
    filler: GroupBatch

    def gather(self, mine: Told) -> list[Told]:
        """What every rank tells, in order of ranks; it is pickled on its way."""
        told: list[Any] = [None] * self.num_ranks
        distributed.all_gather_object(told, mine, group=self.group)
        return told

    def end_passes(self, num_passes: int) -> None:
        """Gives up what passes without gradients left behind for a backward pass: whole weights, and their order."""
        if num_passes:
            self.root.reset_iter_state()


def everyones(lockstep: Lockstep | None, mine: Told) -> list[Told]:
    """What every rank tells; only this one's where the model lies in one piece."""
    return [mine] if lockstep is None else lockstep.gather(mine)


def filler_batch(token_id: int) -> GroupBatch:
    """A prompt and a response of two tokens, none of which was sampled."""
    return GroupBatch(
        prompts=(PreparedPrompt((token_id, token_id), ()),),
        prompt_of_row=torch.zeros(1, dtype=torch.int64),
        response_ids=torch.full((1, 2), token_id),
        response_mask=torch.zeros(1, 2),
        response_lengths=torch.tensor([2]),
    )


def nothing_of(stats: TokenStats | Tensor) -> Tensor:
    """Zero, with a graph to all that a pass computed."""
    tensors = [stats] if isinstance(stats, Tensor) else [stats.logprobs, stats.entropy]
    return sum((0.0 * tensor.sum() for tensor in tensors if tensor is not None), start=torch.zeros(()))


def local_part(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, in the same memory; a whole tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_parts(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [local_part(tensor) for tensor in tensors]


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


def whole(tensor: Tensor, device: torch.device) -> Tensor:
    """A sharded tensor put together on `device`, by all ranks at once; a whole tensor itself."""
    return tensor.to(device).full_tensor() if isinstance(tensor, DTensor) else tensor
