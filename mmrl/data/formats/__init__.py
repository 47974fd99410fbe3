"""One small module a file format. Each has `read(path)`, which yields a RawRow or a RowError for every record.

What a file is follows from its content where that is binary, else from how its name ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from mmrl.data.formats import csv_file, hub, image_folder, json_file, jsonl
from mmrl.data.formats.content import kind_of, refuse_pickle_name
from mmrl.data.formats.hub import HubSplit
from mmrl.data.rows import RawRow, RowError, RowProblem, check_values
from mmrl.errors import DataError, MmrlError, NotFoundError

Reader = Callable[[Path], Iterator[RawRow | RowError]]
RowsAt = Path | HubSplit
"""Where rows are: a file, a folder of images by class, or a split that `datasets` reads."""


def _read_parquet(path: Path) -> Iterator[RawRow | RowError]:
    from mmrl.data.formats import parquet

    return parquet.read(path)


def _read_arrow(path: Path) -> Iterator[RawRow | RowError]:
    from mmrl.data.formats import arrow_file

    return arrow_file.read(path)


READERS: dict[str, Reader] = {
    ".jsonl": jsonl.read,
    ".json": json_file.read,
    ".parquet": _read_parquet,
    ".csv": csv_file.read,
    ".tsv": csv_file.read,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
}
_ARCHIVES = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz")
_BY_CONTENT: dict[str, Reader] = {
    "parquet": _read_parquet,
    "arrow_file": _read_arrow,
    "arrow_stream": _read_arrow,
}


def read_rows(at: RowsAt) -> Iterator[RawRow | RowError]:
    """Every record in order: a row whose values are sound, or what is wrong with it."""
    if isinstance(at, HubSplit):
        yield from (_checked(row, at.name) for row in hub.read(at))
        return
    try:
        reader = image_folder.read if at.is_dir() else reader_of(at)
        for row in reader(at):
            yield _checked(row, at.name)
    except FileNotFoundError as error:
        raise NotFoundError(f"{at} does not exist") from error
    except OSError as error:
        # Arrow tells of damage as an OSError too, but of one that no system call gave.
        kind = DataError if error.errno is None else MmrlError
        raise kind(f"{at} cannot be read: {error.strerror or str(error).strip()}") from error


def reader_of(path: Path) -> Reader:
    """The reader of a file. Raises DataError for a pickle in any disguise, an archive, and a kind that is unknown."""
    refuse_pickle_name(path)
    kind = kind_of(path)
    if kind in _BY_CONTENT:
        return _BY_CONTENT[kind]
    suffix = path.suffix.lower()
    if kind != "other":
        raise DataError(f"{path}: packed as {kind}; unpack it first, and give the file or folder that comes out")
    if suffix in _ARCHIVES:
        raise DataError(
            f"{path}: ends in {path.suffix!r} and is no archive by its content ({path.stat().st_size:,} bytes; "
            "a broken download?); get it again, or give the folder"
        )
    if suffix not in READERS:
        raise DataError(f"{path}: no reader for files that end in {path.suffix!r}; allowed are {', '.join(READERS)}")
    return READERS[suffix]


def _checked(row: RawRow | RowError, file: str) -> RawRow | RowError:
    if isinstance(row, RowError):
        return row
    try:
        check_values(row.values)
    except RowProblem as problem:
        return RowError(row.file or file, row.number, problem.field, problem.message)
    return row
