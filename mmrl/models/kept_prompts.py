"""Prompts forwarded with gradients in sampling, kept for the update of the same weights.

Sampling and the first update after it forward the same prompts and images under the same weights. `keep` stores what
the former computed, graph included. The update then takes prompts as leaves (`take`): each micro-batch's gradient with
respect to them is added up, and `backward` sends the sum through the kept graph in one pass. So the vision tower and
the prompts run forward once a step, however the responses are divided into micro-batches.

Kept prompts are worth nothing once a weight was written to; torch counts the writes of each tensor, and whoever moves
weights calls `drop` as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.batch import PreparedPrompt
from mmrl.models.prefix import Prefix, join_prefixes
from mmrl.models.weight_writes import write_counts

PromptKey = tuple[tuple[int, ...], tuple[tuple[str, tuple[int, int, int]], ...]]


@dataclass(frozen=True)
class _Place:
    """Where a kept prompt lies: forward pass, row of it, tokens of it."""

    index: int
    row: int
    length: int


class _Pass:
    """One forward pass of prompts and the gradient that has come back for it so far."""

    def __init__(self, prefix: Prefix) -> None:
        self.prefix = prefix
        self.gradients: list[Tensor] | None = None

    def leaves(self, rows: Tensor, length: int) -> Prefix:
        """The first `length` columns of the given rows, as leaves whose gradients are collected here."""
        columns = self.prefix.select(rows).cut(length)
        if not torch.is_grad_enabled():
            return columns.detached()
        leaves = columns.detached(requires_grad=True)
        for position, leaf in enumerate(leaves.tensors()):
            if leaf.requires_grad:
                leaf.register_post_accumulate_grad_hook(lambda leaf, at=position: self._collect(at, rows, leaf))
        return leaves

    def backward(self) -> None:
        if self.gradients is None:
            return
        pairs = zip(self.prefix.tensors(), self.gradients, strict=True)
        learned = [(tensor, gradient) for tensor, gradient in pairs if tensor.requires_grad]
        self.gradients = None
        if learned:
            torch.autograd.backward(*zip(*learned, strict=True))

    def _collect(self, position: int, rows: Tensor, leaf: Tensor) -> None:
        """Adds a leaf's gradient, which it then gives up."""
        if self.gradients is None:
            self.gradients = [torch.zeros_like(tensor) for tensor in self.prefix.tensors()]
        gradient, leaf.grad = leaf.grad, None
        total = self.gradients[position]
        if leaf.ndim == 4:
            total = total[:, :, : leaf.shape[2]]
        total.index_add_(0, rows, gradient)


class KeptPrompts:
    """max_tokens: most prompt tokens that are kept, 0 for none; their activations stay in memory until the update."""

    def __init__(self, model: nn.Module) -> None:
        self.max_tokens = 0
        self._model = model
        self._passes: list[_Pass] = []
        self._places: dict[PromptKey, _Place] = {}
        self._num_tokens = 0
        self._writes: list[tuple[int, int]] = []

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptPrompts:
        """For a copy of the model, whose weights are others: nothing kept."""
        return KeptPrompts(deepcopy(self._model, memo))

    def has_room_for(self, prompts: Sequence[PreparedPrompt]) -> bool:
        self._drop_if_written()
        return self._num_tokens + sum(map(len, prompts)) <= self.max_tokens

    def keep(self, prompts: Sequence[PreparedPrompt], prefix: Prefix) -> None:
        """prefix: of `prompts`, a row each, with its graph."""
        self._writes = write_counts([self._model])
        for row, prompt in enumerate(prompts):
            self._places[prompt_key(prompt)] = _Place(len(self._passes), row, len(prompt))
            self._num_tokens += len(prompt)
        self._passes.append(_Pass(prefix))

    def of(self, prompts: Sequence[PreparedPrompt]) -> list[PreparedPrompt]:
        """Those of `prompts` that are kept."""
        self._drop_if_written()
        return [prompt for prompt in prompts if prompt_key(prompt) in self._places]

    def take(self, prompts: Sequence[PreparedPrompt]) -> tuple[Prefix | None, list[int], list[int]]:
        """Kept rows for those of `prompts` that are kept, and the indices of kept and of missing ones.

        The rows come in the order of the kept indices. With gradients on they are leaves; see `backward`.
        """
        self._drop_if_written()
        places = [self._places.get(prompt_key(prompt)) for prompt in prompts] if self._places else [None] * len(prompts)
        missing = [index for index, place in enumerate(places) if place is None]
        by_pass: dict[int, list[tuple[int, _Place]]] = {}
        for index, place in enumerate(places):
            if place is not None:
                by_pass.setdefault(place.index, []).append((index, place))
        parts, kept = [], []
        for number, found in by_pass.items():
            rows = torch.tensor([place.row for _, place in found], device=self._passes[number].prefix.device)
            parts.append(self._passes[number].leaves(rows, max(place.length for _, place in found)))
            kept += [index for index, _ in found]
        return (join_prefixes(parts) if parts else None), kept, missing

    def backward(self) -> None:
        """Sends what has come back for kept prompts on to the weights; nothing is kept afterwards."""
        try:
            while self._passes:
                self._passes.pop().backward()
        finally:
            self.drop()

    def drop(self) -> None:
        self._passes.clear()
        self._places.clear()
        self._num_tokens = 0

    def _drop_if_written(self) -> None:
        if self._passes and self._writes != write_counts([self._model]):
            self.drop()


def prompt_key(prompt: PreparedPrompt) -> PromptKey:
    """Equal for prompts of the same tokens and images."""
    return prompt.token_ids, tuple((image.sha256, image.grid_thw) for image in prompt.images)
