"""PostgreSQL as the job database: its address, its settings, its clock."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa

from mmrl.errors import ConfigError

CLOCK = "(extract(epoch FROM statement_timestamp())::double precision)"
SECRET_KEYS = ("password", "sslpassword")
"""Parts of an address's query that are nobody's business; SQLAlchemy would show them."""

_SCHEMES = {"postgres", "postgresql", "postgresql+psycopg"}
_PING_AFTER_S = 5.0


def is_postgres(url: sa.URL) -> bool:
    return url.drivername in _SCHEMES


def make_engine(url: sa.URL, *, lock_wait_s: float, pool_size: int) -> sa.Engine:
    """An engine on the server; nothing is connected yet.

    Sessions give up a lock after `lock_wait_s`, and a transaction whose client is stopped (SIGSTOP, a dead network)
    is ended by the server after half of that, so that its locks hold up nobody for longer.
    Raises ConfigError without psycopg.
    """
    try:
        import psycopg
    except ImportError as error:
        raise ConfigError(
            "a PostgreSQL database needs the package psycopg, which is not installed; pip install 'mmrl[postgres]'"
        ) from error
    milliseconds = int(lock_wait_s * 1000)
    settings = (
        f"-c lock_timeout={milliseconds} -c idle_in_transaction_session_timeout={max(1000, milliseconds // 2)} "
        # Every order that is asked for is that of an index. Where statistics are behind, the planner would rather read
        # and sort the whole queue for each claim.
        "-c enable_sort=off "
        # To plan a claim takes longer than to run it, and no plan depends on the values.
        "-c plan_cache_mode=force_generic_plan"
    )
    given = url.query.get("options")
    arguments = {
        "options": f"{given if isinstance(given, str) else ''} {settings}".strip(),
        "connect_timeout": 10,
        "application_name": "mmrl",
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "tcp_user_timeout": 30_000,
    }
    secrets = {key: url.query[key] for key in SECRET_KEYS if key in url.query}
    defaults = {key: value for key, value in arguments.items() if key == "options" or key not in url.query}
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["options", *SECRET_KEYS]),
        hide_parameters=True,
        connect_args=defaults | secrets,
        pool_size=pool_size,
        max_overflow=32,
        pool_recycle=3600,
    )

    @sa.event.listens_for(engine, "checkin")
    def _note_use(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @sa.event.listens_for(engine, "checkout")
    def _ping(connection: Any, record: Any, _proxy: Any) -> None:
        """A connection that lay idle may be dead since; the pool then makes another."""
        if time.monotonic() - record.info.get("used", float("inf")) < _PING_AFTER_S:
            return
        try:
            connection.execute("SELECT 1")
            connection.rollback()
        except psycopg.Error as error:
            raise sa.exc.DisconnectionError("the connection is gone") from error

    return engine
