"""One small module a file format. Each has `read(path)`, which yields a RawRow or a RowError for every record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mmrl.data.formats import csv_file, json_file, jsonl, parquet
from mmrl.data.rows import RawRow, RowError, RowProblem, check_values
from mmrl.errors import DataError, MmrlError, NotFoundError

Reader = Callable[[Path], Iterator[RawRow | RowError]]

READERS: dict[str, Reader] = {
    ".jsonl": jsonl.read,
    ".json": json_file.read,
    ".parquet": parquet.read,
    ".csv": csv_file.read,
}


def read_rows(path: Path) -> Iterator[RawRow | RowError]:
    """Every record of the file in order: a row whose values are sound, or what is wrong with it."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: no reader for files that end in {path.suffix!r}; allowed are {', '.join(READERS)}")
    try:
        for row in reader(path):
            yield row if isinstance(row, RowError) else _checked(path, row)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} does not exist") from error
    except OSError as error:
        raise MmrlError(f"{path} cannot be read: {error.strerror or error}") from error


def _checked(path: Path, row: RawRow) -> RawRow | RowError:
    try:
        check_values(row.values)
    except RowProblem as problem:
        return RowError(path.name, row.number, problem.field, problem.message)
    return row
