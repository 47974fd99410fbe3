"""Records as CSV, parquet and JSONL.

JSONL and parquet hold texts as they are. CSV is made for spreadsheets, which run a cell that begins like a formula:
such texts get an apostrophe before them, and control and bidirectional characters stand as escapes.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from console.services.exports import Record, nested_text, plain_text
from mmrl.runs.inert import inert

if TYPE_CHECKING:
    from console.services.exports import Kind

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters that some spreadsheet takes for the beginning of a formula, wide forms among them."""


def columns_of(records: Sequence[Record]) -> list[str]:
    """In the order in which they first appear."""
    return list(dict.fromkeys(name for record in records for name in record.values))


def to_csv(records: Sequence[Record]) -> bytes:
    """With a byte order mark, by which spreadsheets know UTF-8. A missing value is an empty cell."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink)
    columns = columns_of(records)
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(record.values.get(name)) for name in columns] for record in records)
    return sink.getvalue().encode("utf-8-sig")


def to_jsonl(records: Sequence[Record]) -> bytes:
    lines = (json.dumps(_json(record.values), ensure_ascii=False, default=str) for record in records)
    return "".join(f"{plain_text(line)}\n" for line in lines).encode()


def to_parquet(records: Sequence[Record]) -> bytes:
    """A column of truths or numbers has their type; any other one is text, with nested values as JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = {name: _array([record.values.get(name) for record in records]) for name in columns_of(records)}
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink, compression="zstd")
    return sink.getvalue()


WRITERS: Mapping[Kind, Callable[[Sequence[Record]], bytes]] = {
    "csv": to_csv,
    "jsonl": to_jsonl,
    "parquet": to_parquet,
}


def _cell(value: Any) -> str | int | float | None:
    if value is None or isinstance(value, int | float):
        return None if isinstance(value, float) and not math.isfinite(value) else value
    text = inert(plain_text(value if isinstance(value, str) else nested_text(value)))
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _json(value: Any) -> Any:
    """JSON has no numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(name): _json(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _array(values: Sequence[Any]) -> Any:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pa.array(values, pa.int64())
    if kinds and kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else plain_text(_as_text(value)) for value in values], pa.string())


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else nested_text(value)
