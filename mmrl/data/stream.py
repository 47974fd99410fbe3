"""The prompt stream: every sample exactly once an epoch, in an order that (seed, epoch) alone decides.

All ranks walk through the same global batches and each takes its share of every one, so where a stream stands does not
depend on how many ranks there are: a run that goes on with more or fewer of them repeats and leaves out nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mmrl.data.dataset import content_hash
from mmrl.data.mixture import MixPart, Mixture, as_mixture
from mmrl.errors import DataError
from mmrl.types import Sample


class PromptStream:
    """Batches of samples without end. A batch may straddle two epochs, so none is dropped and none is short.

    dataset: samples, or a Mixture: then each part has epochs of its own, and of the first n samples that were drawn,
        the number from each part differs from its share of n by less than one.
    batch_size: of all ranks together. rank, world_size: which share of each batch `next_batch` gives.

    The position is (epoch, position in its order) of each part: what `state` returns and `restore` takes, so that a
    stream that was stopped and restored at any point goes on as if it had not been.
    """

    def __init__(
        self,
        dataset: Sequence[Sample],
        *,
        batch_size: int,
        seed: int,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size < 1:
            raise DataError(f"a batch needs at least 1 sample (got {batch_size})")
        if not 0 <= rank < world_size:
            raise DataError(f"rank must be from 0 to world_size - 1 = {world_size - 1} (got {rank})")
        mixture = as_mixture(dataset)
        if len(mixture) < batch_size:
            raise DataError(
                f"the data set has {len(mixture)} samples, fewer than one batch of {batch_size}; "
                f"use a batch of at most {len(mixture)}, or more data"
            )
        check_shares(mixture, batch_size)
        self._mixture = mixture
        self._batch_size = batch_size
        self._seed = seed
        self._shuffle = shuffle
        self._rank, self._world_size = rank, world_size
        self._parts = [_Part(part, index, seed, shuffle) for index, part in enumerate(mixture.parts)]
        self._drawn = [0] * len(self._parts)

    @property
    def epoch(self) -> int:
        """The epoch, from 0, of the next sample; with several parts that of the one that is least far."""
        return min(part.epoch for part in self._parts)

    def next_batch(self, size: int | None = None) -> list[Sample]:
        """The next samples of this rank: its share of `size`, which is `batch_size` if not given."""
        size = self._batch_size if size is None else size
        batch = [self._next_sample() for _ in range(size)]
        return batch[size * self._rank // self._world_size : size * (self._rank + 1) // self._world_size]

    def take_metrics(self) -> dict[str, float]:
        """`data/epoch`, passes over the data so far, and with several parts of each `data/mix/<name>`, its share in
        what was drawn since the last call, and `data/epoch/<name>`."""
        total = sum(self._drawn)
        passes = [part.num_taken / len(part.samples) for part in self._parts]
        metrics = {"data/epoch": min(passes)}
        if len(self._parts) > 1:
            for part, drawn, done in zip(self._parts, self._drawn, passes, strict=True):
                metrics[f"data/epoch/{part.name}"] = done
                if total:
                    metrics[f"data/mix/{part.name}"] = drawn / total
        self._drawn = [0] * len(self._parts)
        return metrics

    def state(self) -> dict[str, Any]:
        """Where the stream stands, and what its order depends on; JSON values."""
        return {"seed": self._seed, "shuffle": self._shuffle, "parts": [part.state() for part in self._parts]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken. Raises DataError if it was taken of other data or of another order."""
        own = self.state()
        for key in ("seed", "shuffle"):
            if state.get(key) != own[key]:
                raise _cannot_go_on(f"{key} was {state.get(key)} and is now {own[key]}")
        parts = state.get("parts", [])
        names, own_names = ([part["name"] for part in each] for each in (parts, own["parts"]))
        if names != own_names:
            raise _cannot_go_on(f"data.train was {', '.join(names) or 'unknown'} and is now {', '.join(own_names)}")
        for then, now, part in zip(parts, own["parts"], self._parts, strict=True):
            for key, what in (("weight", "its weight"), ("num_samples", "num_samples"), ("content", "its content")):
                if then[key] != now[key]:
                    raise _cannot_go_on(f"{part.name}: {what} was {then[key]} and is now {now[key]}")
            part.go_to(epoch=then["epoch"], position=then["position"])
        self._drawn = [0] * len(self._parts)

    def _next_sample(self) -> Sample:
        """From the part that is furthest behind its share of all that was drawn; the first of equals."""
        which = 0
        if len(self._parts) > 1:
            taken = [part.num_taken for part in self._parts]
            num_drawn = sum(taken) + 1
            behind = [share * num_drawn - count for share, count in zip(self._mixture.shares, taken, strict=True)]
            which = behind.index(max(behind))
        self._drawn[which] += 1
        return self._parts[which].next_sample()


class _Part:
    """One data set of the stream and where it stands."""

    def __init__(self, part: MixPart, index: int, seed: int, shuffle: bool) -> None:
        self.name, self.samples, self._weight = part.name, part.samples, part.weight
        self._key = (seed, index)
        self._shuffle = shuffle
        self._content: str | None = None
        self.go_to(epoch=0, position=0)

    @property
    def num_taken(self) -> int:
        return self.epoch * len(self.samples) + self._position

    def next_sample(self) -> Sample:
        sample = self.samples[int(self._order[self._position])]
        self._position += 1
        if self._position == len(self._order):
            self.go_to(epoch=self.epoch + 1, position=0)
        return sample

    def go_to(self, *, epoch: int, position: int) -> None:
        self.epoch = epoch
        self._position = position
        self._order = self._order_of(epoch)

    def state(self) -> dict[str, Any]:
        if self._content is None:
            self._content = content_hash(self.samples)[:16]
        return {
            "name": self.name,
            "weight": self._weight,
            "num_samples": len(self.samples),
            "content": self._content,
            "epoch": self.epoch,
            "position": self._position,
        }

    def _order_of(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(len(self.samples))
        seed, index = self._key
        # RandomState, because numpy promises never to change the numbers that it gives for a seed.
        entropy = [seed, epoch, index] if index else [seed, epoch]
        generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(entropy)))
        return generator.permutation(len(self.samples))


def check_shares(mixture: Mixture, batch_size: int) -> None:
    """Refuses a part that is too small for its share of a batch: a sample would come twice in one."""
    if len(mixture.parts) < 2:
        return
    for part, share in zip(mixture.parts, mixture.shares, strict=True):
        needed = share * batch_size
        if len(part.samples) < needed:
            raise DataError(
                f"data.train: {part.name} has {len(part.samples)} samples, and its weight gives it {needed:.1f} of "
                f"each batch of {batch_size}; lower its weight or the batch, or give it more samples"
            )


def _cannot_go_on(why: str) -> DataError:
    return DataError(
        f"the prompt stream cannot go on: {why}, so samples would be repeated or left out; resume with the data and "
        "settings of before (an earlier version of a registered data set is NAME:VERSION), or start a new run"
    )
