"""A split of a data set divided in two, so that no prompt and no image is on both sides."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.errors import DataError
from mmrl.types import Sample


@dataclass(frozen=True)
class Divided:
    """The two data sets that were registered: what stays, and what is held out."""

    rest: DatasetInfo
    held_out: DatasetInfo


def divide_dataset(
    name: str,
    *,
    split: str,
    share: float,
    seed: int = 0,
    into: tuple[str, str],
    version: str | None = None,
    registry: DatasetRegistry | None = None,
) -> Divided:
    """Registers the rows of a split as two data sets, each with that split alone. The data set itself stays.

    share: of the rows that are held out, above 0 and below 1; reached as nearly as rows allow that must stay together.
    seed: another one draws other rows; the same one always the same. into: names for what stays and what is held out.
    Raises DataError where no row can be moved, or where the names do.
    """
    if not 0 < share < 1:
        raise DataError(f"share: got {share:g}; it is above 0 and below 1, such as 0.1 for a tenth")
    if len({name, *into}) < 3:
        raise DataError(f"into: got {', '.join(into)}; the two need names of their own, and other ones than {name}")
    registry = registry or DatasetRegistry()
    info = registry.find(name, version)
    if split not in info.splits:
        raise DataError(f"{name} has no split {split!r}; it has {', '.join(info.splits)}")
    held = held_out_rows(registry.read(info, split), share=share, seed=seed)
    num_rows = info.splits[split].num_rows
    if not held or len(held) == num_rows:
        raise DataError(
            f"{name}@{split}: its {num_rows} row(s) share prompts or images, so that no {share:.0%} of them can be "
            "held out by themselves; choose another share, or bring held-out data of its own"
        )
    source = f"{name}:{info.version}@{split}, {share:g} held out with seed {seed}"
    infos = []
    for target, is_held in zip(into, (False, True), strict=True):
        rows = _those(registry.read(info, split), held, is_held=is_held)
        infos.append(registry.register(target, {split: rows}, source=source))
    return Divided(*infos)


def held_out_rows(samples: Iterable[Sample], *, share: float, seed: int) -> set[int]:
    """The rows (from 0) that are held out. Rows that share a prompt or an image are on one side."""
    parents: list[int] = []
    first_with: dict[bytes, int] = {}
    ids: list[str] = []

    def root_of(row: int) -> int:
        while parents[row] != row:
            parents[row] = parents[parents[row]]
            row = parents[row]
        return row

    for row, sample in enumerate(samples):
        parents.append(row)
        ids.append(sample.id)
        for key in _keys(sample):
            other = root_of(first_with.setdefault(key, row))
            parents[max(other, root_of(row))] = min(other, root_of(row))
    groups: dict[int, list[int]] = defaultdict(list)
    for row in range(len(parents)):
        groups[root_of(row)].append(row)
    wanted = max(1, round(share * len(parents))) if parents else 0
    held: set[int] = set()
    for group in sorted(groups.values(), key=lambda rows: _draw(ids[rows[0]], seed)):
        if len(held) + len(group) <= wanted:
            held.update(group)
    return held


def _keys(sample: Sample) -> Iterator[bytes]:
    """What must not be on both sides: the images and, of a row without any, the text of its prompt.

    The same question about different images is another prompt.
    """
    for image in sample.images:
        yield bytes.fromhex(image.sha256)[:16]
    if not sample.images:
        prompt = "\x00".join(f"{message.role}\x00{message.text}" for message in sample.messages)
        yield hashlib.sha256(prompt.encode("utf-8")).digest()[:16]


def _draw(sample_id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{sample_id}".encode()).digest()


def _those(samples: Iterable[Sample], held: set[int], *, is_held: bool) -> Iterator[Sample]:
    return (sample for row, sample in enumerate(samples) if (row in held) == is_held)
