"""Which versions of data sets a config means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mmrl.errors import MmrlError

if TYPE_CHECKING:
    from mmrl.data.registry import DatasetRegistry

_DATA_KEYS = ("train", "eval")


def data_versions(config: Mapping[str, Any], registry: DatasetRegistry | None = None) -> dict[str, str]:
    """For each registered data set that a config names in `data`, as it names it, the version that it means now."""
    refs = _data_refs(config)
    if not refs:
        return {}
    from mmrl.data.registry import DatasetRegistry
    from mmrl.data.sources import take_split

    registry = registry or DatasetRegistry()
    found = {}
    for ref in refs:
        name, _, version = take_split(ref)[0].partition(":")
        try:
            if registry.has(name):
                found[ref] = registry.find(name, version or None).version
        except MmrlError:
            continue
    return found


def _data_refs(config: Mapping[str, Any]) -> list[str]:
    data = config.get("data")
    refs: list[str] = []
    for key in _DATA_KEYS if isinstance(data, Mapping) else ():
        value = data.get(key) if isinstance(data, Mapping) else None
        for item in value if isinstance(value, (list, tuple)) else [value]:
            ref = item.get("name") if isinstance(item, Mapping) else item
            if isinstance(ref, str):
                refs.append(ref)
    return refs
