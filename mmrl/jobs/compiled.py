"""Statements of SQLAlchemy that the driver runs itself, for claims.

SQLite allows one writer, so whatever stands between the beginning and the end of a claim holds up all the others; of
that SQLAlchemy's own work for each statement was four fifths. On PostgreSQL it was half of what a claim takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import pysqlite


class Compiled:
    """One statement. names: the columns that an INSERT gets its values for at each call."""

    def __init__(self, statement: sa.Executable, dialect: str, names: Sequence[str] | None = None) -> None:
        engine = psycopg.dialect() if dialect == "postgresql" else pysqlite.dialect(paramstyle="qmark")
        compiled: Any = statement.compile(dialect=engine, column_keys=names)  # type: ignore[attr-defined]
        self._sql = str(compiled)
        self._order = tuple(compiled.positiontup) if compiled.positional else None
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def run(self, driver: Any, values: Mapping[str, Any]) -> Any:
        """Executes it on the driver's connection and gives its cursor. SQLite has JSON as text, in and out."""
        given = {**self._fixed, **values}
        return driver.execute(self._sql, given if self._order is None else [given.get(name) for name in self._order])


def driver_of(connection: sa.Connection) -> Any:
    """The driver's connection, to run a statement in the transaction of SQLAlchemy's."""
    return connection.connection.driver_connection


def from_json(text: str) -> Any:
    return json.loads(text)
