"""Metrics of several optimiser steps as one."""

from __future__ import annotations


class MeanMetrics:
    """Metrics of several optimiser steps as one: means, the largest of names that end in `_max`, sums of counts.

    prefix: before figures of the optimiser step itself (`grad_norm`, `lr`, …), which become `actor/…` or `critic/…`.
    """

    def __init__(self, prefix: str = "actor") -> None:
        self._prefix = prefix
        self._values: dict[str, list[float]] = {}

    def add(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._values.setdefault(name if "/" in name else f"{self._prefix}/{name}", []).append(value)

    def means(self) -> dict[str, float]:
        return {name: _combine(name, values) for name, values in self._values.items()}


def _combine(name: str, values: list[float]) -> float:
    last = name.rsplit("/", 1)[-1]
    if last.endswith("_max"):
        return max(values)
    if last.startswith(("num_", "flops", "skipped")):
        return sum(values)
    return sum(values) / len(values)
