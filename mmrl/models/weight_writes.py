"""Whether weights were written to, whoever wrote them: torch counts the writes of each tensor."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


def write_counts(modules: Iterable[nn.Module]) -> list[tuple[int, int]]:
    """Where each weight lies and how often it was written to. A write through `.data` is not counted."""
    return [(weight.data_ptr(), weight._version) for module in modules for weight in module.parameters()]
