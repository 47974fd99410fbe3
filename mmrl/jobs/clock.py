"""The database's clock in a statement: seconds since 1970 (UTC), of the moment at which the statement began."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from mmrl.jobs import postgres, sqlite


class _Now(FunctionElement[float]):
    inherit_cache = True
    name = "now"
    type = sa.Double()


NOW = _Now()


@compiles(_Now, "sqlite")
def _on_sqlite(_element: _Now, _compiler: Any, **_options: Any) -> str:
    return sqlite.CLOCK


@compiles(_Now, "postgresql")
def _on_postgresql(_element: _Now, _compiler: Any, **_options: Any) -> str:
    return postgres.CLOCK
