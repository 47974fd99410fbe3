"""What differs between two configs."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.config.loading import Leaf, LoadedConfig


@dataclass(frozen=True)
class Difference:
    """A key whose value differs; None on the side where the key does not exist."""

    key: str
    first: Leaf | None
    second: Leaf | None


def diff_configs(first: LoadedConfig, second: LoadedConfig) -> list[Difference]:
    """The values that differ, defaults included, in the order of the first config, then what only the second has."""
    left = {leaf.key: leaf for leaf in first.leaves}
    right = {leaf.key: leaf for leaf in second.leaves}
    keys = dict.fromkeys([*left, *right])
    pairs = [Difference(key, left.get(key), right.get(key)) for key in keys]
    return [pair for pair in pairs if not _same(pair.first, pair.second)]


def _same(first: Leaf | None, second: Leaf | None) -> bool:
    return first is not None and second is not None and first.value == second.value
