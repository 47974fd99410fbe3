"""How many rows a data set has, without decoding any."""

from __future__ import annotations

from pathlib import Path

from mmrl.data.formats.content import kind_of
from mmrl.data.formats.hub import is_hub_address
from mmrl.data.registry import DatasetRegistry
from mmrl.data.sources import find_sources, pick_split, read_raw, take_split
from mmrl.errors import MmrlError


def count_rows(ref: str) -> int | None:
    """The rows of the registered data set, file or folder that `ref` names as for `load_dataset`.

    None where it is not on this machine, not readable, or on the hub, which is not asked.
    """
    target, split = take_split(ref)
    name, _, version = target.partition(":")
    registry = DatasetRegistry()
    try:
        if registry.has(name):
            info = registry.find(name, version or None)
            return info.splits[pick_split({each: each for each in info.splits}, split, of=name)].num_rows
        if is_hub_address(target) or not Path(target).exists():
            return None
        source = pick_split(find_sources(target, split=split), split, of=target)
        if all(isinstance(part, Path) and part.is_file() and kind_of(part) == "parquet" for part in source.parts):
            return sum(_parquet_rows(part) for part in source.parts if isinstance(part, Path))
        return sum(1 for _ in read_raw(source))
    except MmrlError:
        return None


def _parquet_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)
