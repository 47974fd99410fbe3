"""Statements of SQLAlchemy that the driver of SQLite runs itself.

SQLite allows one writer, so whatever stands between the beginning and the end of a claim holds up all the others; of
that SQLAlchemy's own work for each statement was four fifths. On PostgreSQL nobody waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite import pysqlite


class Compiled:
    """One statement. names: the columns that an INSERT gets its values for at each call."""

    def __init__(self, statement: sa.Executable, names: Sequence[str] | None = None) -> None:
        compiled: Any = statement.compile(  # type: ignore[attr-defined]
            dialect=pysqlite.dialect(paramstyle="qmark"), column_keys=names
        )
        self._sql = str(compiled)
        self._order = tuple(compiled.positiontup)
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def run(self, connection: sa.Connection, values: Mapping[str, Any]) -> Any:
        """Executes it in the connection's transaction and gives the driver's cursor. JSON is text, in and out."""
        driver: Any = connection.connection.driver_connection
        given = {**self._fixed, **values}
        return driver.execute(self._sql, [given.get(name) for name in self._order])


def from_json(text: str) -> Any:
    return json.loads(text)
