"""Outputs of modules, written down in one pass and taken in a later one over the same tokens and weights.

A pass that takes them computes no product forward. Going backward it is as any other, since the gradients of a linear
map need its input and its weight, and those of attention what it was given, its output and the sums that its weights
were divided by, but not how these came about.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from torch import Tensor, nn

Part = Literal["output", "log_sums"]
"""Of a module: its output, (rows, length, features); of attention also, for each query (rows, length, heads), the
logarithm of the sum over keys of exp(score)."""


class PassOutputs(Protocol):
    """What accompanies a pass."""

    def known(self, module: nn.Module, part: Part = "output") -> Tensor | None:
        """What `module` takes in place of computing it; None where it is to be computed."""

    def note(self, module: nn.Module, tensor: Tensor, part: Part = "output") -> None:
        """`tensor` was computed by `module`."""


_OUTPUTS: ContextVar[PassOutputs | None] = ContextVar("pass_outputs", default=None)


def pass_outputs() -> PassOutputs | None:
    """Those of the pass under way."""
    return _OUTPUTS.get()


@contextmanager
def with_pass_outputs(outputs: PassOutputs | None) -> Iterator[None]:
    """Passes within the block take from and write to `outputs`."""
    token = _OUTPUTS.set(outputs)
    try:
        yield
    finally:
        _OUTPUTS.reset(token)
