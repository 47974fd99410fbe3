"""Which of a row's columns a user's mapping puts where, before the rest is recognised by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mmrl.data.rows import RowProblem, name_list
from mmrl.data.turns import PROMPT_COLUMNS

IMAGE_COLUMNS = ("images", "image")
FILE_NAME_COLUMNS = ("file_name", "file_names")

_RIVALS: dict[str, tuple[str, ...]] = {
    "prompt": PROMPT_COLUMNS,
    "messages": PROMPT_COLUMNS,
    "images": (*IMAGE_COLUMNS, *FILE_NAME_COLUMNS),
}


@dataclass(frozen=True)
class Columns:
    """visible: what is recognised by name. hidden: columns that a mapping put another in place of; kept as meta."""

    visible: Mapping[str, Any]
    hidden: Mapping[str, Any]


def map_columns(values: Mapping[str, Any], mapping: tuple[tuple[str, str], ...]) -> Columns:
    """The row's columns with each mapped one under the name of its field."""
    if not mapping:
        return Columns(values, {})
    mapped = {field: _look_up(values, column) for field, column in mapping}
    taken = {column for _, column in mapping}
    replaced = {name for field in mapped for name in _RIVALS.get(field, (field,))}
    visible = {name: value for name, value in values.items() if name not in taken | replaced}
    # An image that was replaced cannot be kept beside a sample, so it is left out.
    lost = taken | {name for name in replaced if name in IMAGE_COLUMNS}
    hidden = {name: value for name, value in values.items() if name in replaced and name not in lost}
    return Columns(visible | mapped, hidden)


def _look_up(values: Mapping[str, Any], column: str) -> Any:
    if len(column) >= 2 and column[0] == column[-1] == '"':
        return column[1:-1]
    if column in values:
        return values[column]
    value: Any = values
    for key in column.split("."):
        if not isinstance(value, Mapping) or key not in value:
            near = get_close_matches(column, list(values), n=1)
            hint = f"; nearest: {near[0]}" if near else ""
            raise RowProblem(column, f"no such column, which the mapping names; columns are {name_list(values)}{hint}")
        value = value[key]
    return value
