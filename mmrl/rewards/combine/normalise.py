"""Bringing the parts of a reward to one scale before they are weighted and added.

    group    (value - mean of the group) / (std of the group + 1e-6)
    running  (value - mean so far) / (std so far + 1e-6)

Standard deviations are unbiased, as in GRPO. Missing values are left out of them and stay missing. A group, or a
history, without spread gives exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from mmrl.config.reward_base import Normalisation
from mmrl.types import RewardPart, RewardResult

_EPSILON = 1e-6
_NO_SPREAD = 1e-6


@dataclass
class RunningStatistics:
    """Count, mean and sum of squared distances from the mean (Welford) of all values so far."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: Sequence[float]) -> None:
        for value in values:
            self.count += 1
            distance = value - self.mean
            self.mean += distance / self.count
            self.squares += distance * (value - self.mean)

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0


class Normaliser:
    """Scales the parts that ask for it.

    how: position of a part -> its normalisation; positions that are not in it stay as they are.
    """

    def __init__(self, how: Mapping[int, Normalisation]) -> None:
        self._how = {position: normalisation for position, normalisation in how.items() if normalisation != "none"}
        self._running = {
            position: RunningStatistics() for position, normalisation in self._how.items() if normalisation == "running"
        }

    def scaled(self, groups: Sequence[Sequence[RewardResult]]) -> list[list[tuple[RewardPart, ...]]]:
        """The parts of every response, by group, with `scaled` set. Takes the values into the running figures first."""
        for position, statistics in self._running.items():
            statistics.add([value for group in groups for value in _values(group, position)])
        return [self._scaled_group(group) for group in groups]

    def state_dict(self) -> dict[str, Any]:
        return {str(position): [one.count, one.mean, one.squares] for position, one in self._running.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Parts that the state does not know begin anew."""
        for position, (count, mean, squares) in state.items():
            if int(position) in self._running:
                self._running[int(position)] = RunningStatistics(int(count), float(mean), float(squares))

    def _scaled_group(self, group: Sequence[RewardResult]) -> list[tuple[RewardPart, ...]]:
        figures = {position: self._figures(group, position) for position in self._how}
        return [
            tuple(
                replace(part, scaled=_scale(part.value, *figures[position])) if position in figures else part
                for position, part in enumerate(result.parts)
            )
            for result in group
        ]

    def _figures(self, group: Sequence[RewardResult], position: int) -> tuple[float, float]:
        if self._how[position] == "running":
            return self._running[position].mean, self._running[position].std
        values = _values(group, position)
        return fmean(values) if values else 0.0, stdev(values) if len(values) > 1 else 0.0


def _values(group: Sequence[RewardResult], position: int) -> list[float]:
    return [value for result in group if (value := result.parts[position].value) is not None]


def _scale(value: float | None, mean: float, std: float) -> float | None:
    if value is None:
        return None
    return 0.0 if std <= _NO_SPREAD * max(1.0, abs(mean)) else (value - mean) / (std + _EPSILON)
