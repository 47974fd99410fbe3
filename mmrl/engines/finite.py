"""Numbers stay numbers: what is checked before the weights move, and the error that stops the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Literal

import torch
from torch import Tensor, nn

from mmrl.batch import GroupBatch
from mmrl.errors import RunFailedError
from mmrl.models.lockstep import local_part

Learner = Literal["actor", "critic", "reward_model"]


class NotFiniteError(RunFailedError):
    """A number of a run is NaN or infinite. No weight has moved by it.

    batch: what the numbers came from, as far as it is known: an update's mini-batch, or prompts with the responses
    that were sampled. learner: whose update it was. update: its place in its step, from 0; None where it was no update.
    """

    def __init__(
        self, message: str, *, batch: GroupBatch | None = None, learner: Learner = "actor", update: int | None = None
    ) -> None:
        super().__init__(message)
        self.batch = batch
        self.learner = learner
        self.update = update


def check_batch(batch: GroupBatch) -> None:
    """Raises NotFiniteError naming the first number that is not finite, before any update is made of the batch."""
    found = next(non_finite_inputs(batch), None)
    if found is None:
        return
    name, place = found
    row, *token = place
    value = getattr(batch, name)[tuple(place)].item()
    where = f"response {row}" + (f", token {token[0]}" if token else "")
    raise NotFiniteError(
        f"{name} of {where} of the batch is {value}; a stage of your own, a reward or the algorithm made it, no update "
        "has been made of it",
        batch=batch,
    )


def non_finite_inputs(batch: GroupBatch) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name of each of the batch's tensors that is not finite, and the first place in it."""
    for field in fields(batch):
        tensor = getattr(batch, field.name)
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            place = first_non_finite(tensor)
            if place is not None:
                yield field.name, place


def first_non_finite(tensor: Tensor) -> tuple[int, ...] | None:
    """The first place that is NaN or infinite, in row-major order."""
    bad = ~tensor.detach().isfinite()
    if not bad.any():
        return None
    return tuple(int(index) for index in torch.nonzero(bad)[0])


@torch.no_grad()
def weights_fault(named: Iterable[tuple[str, nn.Parameter]], *, rate: float, decay: float) -> str | None:
    """Why one step of AdamW at this rate could leave a weight that is no finite number, or None; of a weight that is
    divided among ranks this rank's part is looked at.

    A step moves no weight by more than rate · (decay · |w| + u), where |u| = |m| / (√v + ε) is at most some hundreds
    for any betas in use; so weights that are far from the largest number of their precision stay finite.
    """
    for name, parameter in named:
        mine = local_part(parameter.detach())
        largest = float(torch.linalg.vector_norm(mine, ord=torch.inf)) if mine.numel() else 0.0
        reach = largest * (1 + rate * decay) + rate * _LARGEST_MOVE
        if not reach < torch.finfo(parameter.dtype).max:
            return f"weight {name} is as large as {largest:g}, so that the update would leave it without a finite value"
    return None


def first_fault(faults: Sequence[str | None]) -> str | None:
    """The first of the faults that ranks found, in order of ranks, with the rank where there are several."""
    for rank, fault in enumerate(faults):
        if fault is not None:
            return f"on rank {rank}: {fault}" if len(faults) > 1 else fault
    return None


_LARGEST_MOVE = 1e6
