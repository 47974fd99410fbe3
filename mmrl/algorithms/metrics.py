"""Metrics of one micro-batch, brought from the device in one copy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mmrl.batch import LossOutput


class TokenMetrics:
    """Collects sums and maxima over the sampled tokens of a micro-batch.

    mask: (B, T). num_tokens_of_update: N of the whole update; a micro-batch's share of it is the count that goes with
    sums that are divided already, so that these add up to the update's value.
    """

    def __init__(self, mask: Tensor, *, num_tokens_of_update: int) -> None:
        self._counted = mask > 0
        self._num_tokens_of_update = max(num_tokens_of_update, 1)
        self._means: dict[str, Tensor] = {}
        self._parts: dict[str, Tensor] = {}
        self._maxima: dict[str, Tensor] = {}

    def mean(self, name: str, values: Tensor) -> None:
        """The mean of (B, T) values over sampled tokens."""
        self._means[name] = torch.where(self._counted, values.detach(), 0).sum()

    def part(self, name: str, value: Tensor) -> None:
        """A scalar that is this micro-batch's part of the update's value."""
        self._parts[name] = value.detach()

    def maximum(self, name: str, values: Tensor) -> None:
        """The largest of (B, T) values over sampled tokens; nothing is logged where there are none."""
        if values.numel():
            self._maxima[name] = torch.where(self._counted, values.detach(), -torch.inf).max()

    def output(self, loss: Tensor) -> LossOutput:
        num_tokens, *values = self._fetch()
        means = dict(zip(self._means, values, strict=False))
        parts = dict(zip(self._parts, values[len(means) :], strict=False))
        maxima = dict(zip(self._maxima, values[len(means) + len(parts) :], strict=True))
        share = num_tokens / self._num_tokens_of_update
        sums: Mapping[str, tuple[float, float]] = {
            **{name: (value, num_tokens) for name, value in means.items()},
            **{name: (value, share) for name, value in parts.items()},
        }
        return LossOutput(loss=loss, sums=sums, maxima=maxima if num_tokens else {})

    def _fetch(self) -> list[float]:
        tensors = [self._counted.sum(), *self._means.values(), *self._parts.values(), *self._maxima.values()]
        return torch.stack([tensor.double() for tensor in tensors]).tolist()
