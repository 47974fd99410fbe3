"""Outputs of linear maps, written down in one pass and taken in a later one over the same tokens and weights.

A pass that takes them computes no product forward. Going backward it is as any other, since a linear map's gradients
need its input and its weight, not how its output came about.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from torch import Tensor, nn


class LinearOutputs(Protocol):
    """What accompanies a pass."""

    def known(self, module: nn.Module) -> Tensor | None:
        """The output that `module` takes in place of its product; None where it is to be computed."""

    def note(self, module: nn.Module, output: Tensor) -> None:
        """`output` was computed by `module`."""


_OUTPUTS: ContextVar[LinearOutputs | None] = ContextVar("linear_outputs", default=None)


def linear_outputs() -> LinearOutputs | None:
    """Those of the pass under way."""
    return _OUTPUTS.get()


@contextmanager
def with_linear_outputs(outputs: LinearOutputs | None) -> Iterator[None]:
    """Passes within the block take from and write to `outputs`."""
    token = _OUTPUTS.set(outputs)
    try:
        yield
    finally:
        _OUTPUTS.reset(token)
