"""What commands print: data on stdout, for people as a table or for programs as JSON; notes on stderr."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_GAP = "  "
_MIN_LAST_WIDTH = 24


def print_json(data: Any) -> None:
    """Data as indented JSON: dataclasses and pydantic models as objects (secrets of configs
    left out), paths as text, NaN and infinities as null.

    Characters that a terminal might obey are escaped, which JSON reads back as they were.
    """
    text = json.dumps(_jsonable(data), indent=2, ensure_ascii=False, allow_nan=False)
    print("".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text))


def print_table(rows: Sequence[Mapping[str, Any] | Sequence[Any]], columns: Sequence[str]) -> None:
    """Rows (maps by column, or sequences in their order) under the column names.

    Aligned in one line a row where it fits the terminal, or where stdout is none; with the last column folded where
    that leaves it some room; else one `column  value` line a cell, rows apart by an empty line.
    """
    cells = [[cell_text(cell) for cell in _in_order(row, columns)] for row in rows]
    width = terminal_width()
    widths = [max(map(text_width, column)) for column in zip(columns, *cells, strict=True)]
    room = None if width is None else width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if room is None or room >= min(widths[-1], _MIN_LAST_WIDTH):
        lines = [line for row in [list(columns), *cells] for line in _aligned(row, widths, room)]
    else:
        lines = [line for row in cells for line in ["", *_stacked(row, columns)]][1:]
    print("\n".join(lines))


def note(text: str) -> None:
    """A line for people on stderr. Names and messages in it come from users and runs: no terminal obeys them."""
    from mmrl.runs.inert import inert

    print(inert(text), file=sys.stderr)


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is, None where it is none: then nothing is folded."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def text_width(text: str) -> int:
    """Columns that a text takes in a terminal; wide characters take two."""
    from rich.cells import cell_len

    return max((cell_len(line) for line in text.split("\n")), default=0)


def fold(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` columns, broken between words where there are any."""
    from rich.cells import chop_cells

    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            joined = f"{line} {word}" if line else word
            if text_width(joined) <= width:
                line = joined
                continue
            if line:
                lines.append(line)
            *full, line = chop_cells(word, width) or [""]
            lines += full
        lines.append(line)
    return lines


def cell_text(value: Any) -> str:
    """A cell as text on one line; control characters cannot reach the terminal."""
    from mmrl.runs.inert import inert

    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return inert(str(value), one_line=True)


def _in_order(row: Mapping[str, Any] | Sequence[Any], columns: Sequence[str]) -> Sequence[Any]:
    return [row.get(column) for column in columns] if isinstance(row, Mapping) else row


def _aligned(row: Sequence[str], widths: Sequence[int], room: int | None) -> list[str]:
    *cells, last = row
    head = "".join(cell + " " * (width - text_width(cell)) + _GAP for cell, width in zip(cells, widths, strict=False))
    first, *others = [last] if room is None or text_width(last) <= room else fold(last, room)
    return [(head + first).rstrip(), *(" " * text_width(head) + line for line in others)]


def _stacked(row: Sequence[str], columns: Sequence[str]) -> list[str]:
    width = max(map(text_width, columns))
    return [f"{column:<{width}}{_GAP}{cell}" for column, cell in zip(columns, row, strict=True)]


def _jsonable(data: Any) -> Any:
    from mmrl.config.secrets import redact

    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {field.name: _jsonable(getattr(data, field.name)) for field in dataclasses.fields(data)}
    if hasattr(data, "model_dump"):
        return redact(_jsonable(data.model_dump(mode="json")))
    if isinstance(data, Mapping):
        return {str(key): _jsonable(value) for key, value in data.items()}
    if isinstance(data, (list, tuple, set, frozenset)):
        return [_jsonable(item) for item in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return str(data) if isinstance(data, Path) else data
