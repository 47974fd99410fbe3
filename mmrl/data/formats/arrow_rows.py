"""Rows of Arrow record batches, a few at a time. Names of classes that `datasets` keeps beside numbers are put in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from mmrl.data.rows import RawRow, RowError, RowProblem, describe

ROWS_AT_ONCE = 64
BYTES_AT_ONCE = 16 * 2**20


def rows_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema, file: str) -> Iterator[RawRow | RowError]:
    """The rows of the batches in order, counted from 1."""
    names = class_names(schema)
    number = 0
    for batch in batches:
        for part in _parts(batch):
            for values in _values_of(part):
                number += 1
                try:
                    if isinstance(values, RowProblem):
                        raise values
                    yield RawRow(number, with_class_names(values, names), file)
                except RowProblem as problem:
                    yield RowError(file, number, problem.field, problem.message)


def rows_at_once(num_rows: int, num_bytes: int) -> int:
    """How many rows to turn into Python objects together, given what rows take on average."""
    average = max(num_bytes // max(num_rows, 1), 1)
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // average))


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """By column, the names that its numbers stand for, where `datasets` wrote them into the schema (ClassLabel)."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return names_of_features(features)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def names_of_features(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """The same from the features themselves, as `datasets` writes them as JSON."""
    return {
        column: feature["names"]
        for column, feature in features.items()
        if isinstance(feature, Mapping)
        and feature.get("_type") == "ClassLabel"
        and isinstance(feature.get("names"), list)
    }


def with_class_names(values: dict[str, Any], names: Mapping[str, list[str]]) -> dict[str, Any]:
    for column, known in names.items():
        label = values.get(column)
        if isinstance(label, int):
            if not 0 <= label < len(known):
                raise RowProblem(
                    column, f"class {describe(label)} has no name; there are names for 0 to {len(known) - 1}"
                )
            values[column] = known[label]
    return values


def _values_of(part: pa.RecordBatch) -> Iterator[dict[str, Any] | RowProblem]:
    """The rows of a batch; in place of one whose text is damaged, what is wrong with it."""
    try:
        yield from part.to_pylist()
    except UnicodeDecodeError:
        for index in range(part.num_rows):
            try:
                yield from part.slice(index, 1).to_pylist()
            except UnicodeDecodeError as error:
                yield RowProblem(
                    "", f"holds text that is no UTF-8 ({error.reason}); the file is damaged: write it again"
                )


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    size = rows_at_once(batch.num_rows, batch.nbytes)
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
