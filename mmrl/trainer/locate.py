"""Where the first number that is not finite arises in a forward and backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from mmrl.batch import GroupBatch, LossOutput
from mmrl.engines.finite import first_non_finite

PlaceKind = Literal["weight", "input", "module", "logprobs", "loss_term", "gradient", "weight_gradient"]


@dataclass(frozen=True)
class Place:
    """A number that is not finite.

    kind, name: a weight, a tensor of the batch, the output of a module, `logprobs` or `entropy` of the policy, a term
        of the loss, the gradient of a module's output, or the gradient of a weight.
    index: where in it, with its shape; value: nan, inf or -inf.
    row, token: response of the batch and token in it, where that is known.
    arose_here: for a module, whether what it was given was finite, so that it arose in there.
    """

    kind: PlaceKind
    name: str
    value: str
    index: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    row: int | None = None
    token: int | None = None
    arose_here: bool | None = None

    def __str__(self) -> str:
        words = f"{self.kind.replace('_', ' ')} {self.name}: {self.value}"
        if self.shape:
            words += f" at {list(self.index)} of {list(self.shape)}"
        if self.row is not None:
            words += f", response {self.row}" + ("" if self.token is None else f", token {self.token}")
        if self.arose_here is not None:
            words += ", from finite inputs" if self.arose_here else ", from inputs that were not finite already"
        return words


class Locator:
    """Watches a module and notes, in the order of time, the first of each kind of place; `places[0]` is where it began.

    A module's output is seen before that of the module around it, and a gradient before those upstream of it.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self.places: list[Place] = []

    def look_at_weights(self) -> None:
        for name, weight in self._module.named_parameters():
            self._note("weight", name, weight)

    def look_at_inputs(self, batch: GroupBatch) -> None:
        """Tensors of the batch that an update is made of."""
        for name in ("advantages", "old_logprobs", "reference_logprobs", "values", "returns", "succeeded"):
            tensor = getattr(batch, name)
            if tensor is not None:
                self._note("input", name, tensor, numbers=batch.row_numbers)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Looks at every module's output, and at the gradients that come back to it."""
        handles: list[Any] = []
        for name, module in self._module.named_modules():
            handles.append(module.register_forward_hook(partial(self._on_output, name or "the model")))
        for name, weight in self._module.named_parameters():
            if weight.requires_grad:
                handles.append(weight.register_post_accumulate_grad_hook(partial(self._on_weight_gradient, name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def watch(self, objective: Any) -> Any:
        """The same objective, with what it is given and what it makes looked at."""
        return _Watched(objective, self)

    def look_at_stats(self, micro_batch: GroupBatch, stats: Any) -> None:
        """What the policy gave: its statistics of each token, or a critic's values."""
        if isinstance(stats, Tensor):
            tensors: dict[str, Tensor | None] = {"values": stats}
        else:
            tensors = {"logprobs": stats.logprobs, "entropy": stats.entropy}
        for name, tensor in tensors.items():
            if tensor is not None:
                self._note("logprobs", name, tensor, numbers=micro_batch.row_numbers)

    def look_at_loss(self, output: LossOutput) -> None:
        terms = {name: torch.tensor(total, dtype=torch.float64) for name, (total, _) in output.sums.items()}
        for name, value in {**terms, "loss": output.loss}.items():
            self._note("loss_term", name, value)

    def _on_output(self, name: str, module: nn.Module, arguments: Any, output: Any) -> None:
        for tensor in _tensors(output):
            self._note("module", name, tensor, arose_here=all(t.isfinite().all() for t in _tensors(arguments)))
            if tensor.requires_grad:
                tensor.register_hook(partial(self._on_gradient, name))

    def _on_gradient(self, name: str, gradient: Tensor) -> None:
        self._note("gradient", f"of the output of {name}", gradient)

    def _on_weight_gradient(self, name: str, weight: Tensor) -> None:
        assert weight.grad is not None
        self._note("weight_gradient", name, weight.grad)

    def _note(
        self,
        kind: PlaceKind,
        name: str,
        tensor: Tensor,
        *,
        numbers: Tensor | None = None,
        arose_here: bool | None = None,
    ) -> None:
        if any(place.kind == kind for place in self.places):
            return
        index = first_non_finite(tensor)
        if index is None:
            return
        row = token = None
        if numbers is not None and index:
            row, token = int(numbers[index[0]]), (index[1] if len(index) > 1 else None)
        value = str(float(tensor.detach()[index]))
        self.places.append(Place(kind, name, value, index, tuple(tensor.shape), row, token, arose_here))


class _Watched:
    def __init__(self, objective: Any, locator: Locator) -> None:
        self._objective = objective
        self._locator = locator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objective, name)

    def __call__(self, micro_batch: GroupBatch, stats: Any) -> LossOutput:
        self._locator.look_at_stats(micro_batch, stats)
        output: LossOutput = self._objective(micro_batch, stats)
        self._locator.look_at_loss(output)
        return output


def _tensors(value: Any) -> Iterator[Tensor]:
    """The floating-point tensors in what a module takes or gives."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for entry in value.values():
            yield from _tensors(entry)
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _tensors(entry)
