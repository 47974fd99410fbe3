"""Metrics of one optimiser step, added up over its micro-batches: never a mean of means, never the last one's."""

from __future__ import annotations

from collections.abc import Mapping

from mmrl.batch import LossOutput


class MetricSums:
    """Adds up sums with their counts, and takes maxima; divides once, at the end."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}
        self._maxima: dict[str, float] = {}

    def add(self, output: LossOutput) -> None:
        self._add(output.sums, output.maxima)

    def merge(self, other: MetricSums) -> None:
        """Adds what another one has added up."""
        self._add(other._sums, other._maxima)

    def metrics(self) -> dict[str, float]:
        """The mean of each sum and each maximum; a sum with count 0 has no mean and is left out."""
        means = {name: total / count for name, (total, count) in self._sums.items() if count > 0}
        return {**means, **self._maxima}

    def _add(self, sums: Mapping[str, tuple[float, float]], maxima: Mapping[str, float]) -> None:
        for name, (value, count) in sums.items():
            total, total_count = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (total + float(value), total_count + float(count))
        for name, value in maxima.items():
            self._maxima[name] = max(self._maxima.get(name, float(value)), float(value))
