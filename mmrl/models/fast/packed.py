"""Weights laid out as oneDNN multiplies by them, for many products of few rows each.

A product brings its weight into that layout first, which takes as long whether it has one row or a thousand. Decoding
multiplies one token a row by the same weights at each step: on two cores an eighth of the time of products of 128 rows,
and a quarter of those of 32 rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.fast.functions import can_use_onednn

MOST_PACKED = 512 << 20
"""Bytes of weights that are laid out anew; those behind them are multiplied by as they are."""

_PACKED: ContextVar[Mapping[nn.Module, Tensor]] = ContextVar("packed_weights", default={})  # noqa: B039


@contextmanager
def with_packed_weights(maps: Iterable[Any], *, num_rows: int) -> Iterator[None]:
    """Within the block products without gradients of these linear maps take copies of their weights in oneDNN's layout
    for `num_rows` rows; no weight may be written to in it."""
    packed: dict[nn.Module, Tensor] = {}
    num_bytes = 0
    for each in maps:
        weight = each.weight
        num_bytes += weight.nbytes
        if num_bytes > MOST_PACKED or not can_use_onednn(weight, weight):
            break
        packed[each] = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), num_rows)
    token = _PACKED.set(packed)
    try:
        yield
    finally:
        _PACKED.reset(token)


def packed_weight(module: Any) -> Tensor:
    """The weight that products of `module` take in the pass under way."""
    weight: Tensor = module.weight
    return weight if torch.is_grad_enabled() else _PACKED.get().get(module, weight)
