"""The `config.yaml` of a run: read as plain data, and compared with that of a later attempt.

A resumed run may train longer or with other settings, but not another model, on other data, or by another algorithm.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mmrl.config.yaml_text import plain_yaml
from mmrl.errors import ConfigError, DataError
from mmrl.runs.mirror import mirrored_name

IDENTITY = ("name", "kind", "seed", "model.path", "model.lora.rank", "data.train", "algorithm.type")
"""Settings that the attempts of one run share."""


def parse_config(text: str) -> dict[str, Any]:
    """YAML 1.2, so `no` is text. Raises DataError for text that is no YAML mapping."""
    try:
        value = plain_yaml(text, "config.yaml")
    except ConfigError as error:
        raise DataError(f"the run's config.yaml cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise DataError(f"the run's config.yaml must be a mapping (got {type(value).__name__})")
    return value


def identity_conflict(earlier: str, later: str, *, except_for: Collection[str] = ()) -> str | None:
    """The first setting of `IDENTITY` that differs, with both values; None for configs of one run."""
    for key, (before, after) in changed_settings(earlier, later).items():
        if key in IDENTITY and key not in except_for and not _is_one_fetched_twice(before, after):
            return f"{key} is {before!r} there and {after!r} here"
    return None


def changed_settings(earlier: str, later: str) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> value in the earlier and in the later YAML; None where one has no such key."""
    before, after = _flatten(parse_config(earlier)), _flatten(parse_config(later))
    keys = [*before, *(key for key in after if key not in before)]
    return {key: (before.get(key), after.get(key)) for key in keys if before.get(key) != after.get(key)}


def _is_one_fetched_twice(before: Any, after: Any) -> bool:
    """Whether two paths are of the same file of a run in a store, fetched to the homes of two machines."""
    names = [mirrored_name(value) if isinstance(value, str) else None for value in (before, after)]
    return names[0] is not None and names[0] == names[1]


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        return {prefix: value} if prefix else {}
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        flat |= _flatten(entry, f"{prefix}.{key}" if prefix else str(key))
    return flat
