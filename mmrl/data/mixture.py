"""Several data sets that one run draws from, each with a weight."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import overload

from mmrl.errors import DataError
from mmrl.types import Sample


@dataclass(frozen=True)
class MixPart:
    """weight: how often samples are drawn from it, against the weights of the others; more than 0."""

    name: str
    samples: Sequence[Sample]
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Mixture(Sequence[Sample]):
    """The samples of all parts, one part after the other; `PromptStream` draws from the parts by their weights."""

    parts: tuple[MixPart, ...]

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"data.train names {twice[0]!r} twice; name each data set once and give it a larger weight")
        bad = next((part for part in self.parts if not part.weight > 0), None)
        if bad is not None:
            raise DataError(f"data.train: the weight of {bad.name!r} must be above 0 (got {bad.weight:g})")

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The share of each part in what is drawn; they sum to 1."""
        total = sum(part.weight for part in self.parts)
        return tuple(part.weight / total for part in self.parts)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(index)
        which = bisect_right(self._ends, position)
        return self.parts[which].samples[position - (self._ends[which - 1] if which else 0)]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        return tuple(accumulate(len(part.samples) for part in self.parts))


def as_mixture(samples: Sequence[Sample], name: str = "data.train") -> Mixture:
    """The mixture itself, or one of a single part."""
    return samples if isinstance(samples, Mixture) else Mixture((MixPart(name, samples),))
