"""The job database: one way to begin and end transactions on SQLite and PostgreSQL, and one kind of error for both.

SQLite (WAL) at `home()/mmrl.db` unless MMRL_DATABASE_URL names another. No clock but the database's is ever used.
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import sqlalchemy as sa

from mmrl.config.base import home
from mmrl.config.secrets import without
from mmrl.errors import ConfigError, MmrlError
from mmrl.jobs import postgres, sqlite
from mmrl.jobs.clock import NOW
from mmrl.jobs.errors import DatabaseUnavailableError
from mmrl.jobs.settings import JobsSettings, load_settings

Dialect = Literal["sqlite", "postgresql"]
URL_VARIABLE = "MMRL_DATABASE_URL"
FILE_NAME = "mmrl.db"
_GONE = (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.DisconnectionError, sa.exc.TimeoutError)
_DAMAGED = re.compile("file is not a database|disk image is malformed")
_BUSY_S = 30.0
_MOMENT_S = 0.1
_CLOCK = sa.select(NOW)
_T = TypeVar("_T")


class Database:
    """An open database whose schema is the code's. Made by `open`; may be shared by threads, not by forks."""

    def __init__(self, url: sa.URL, settings: JobsSettings, *, pool_size: int = 5) -> None:
        self.settings = settings
        self.dialect: Dialect = "postgresql" if postgres.is_postgres(url) else "sqlite"
        self._secrets = frozenset({url.password} if url.password else ()) | _query_secrets(url)
        self.shown_url = without(url.render_as_string(hide_password=True), self._secrets)
        if self.dialect == "postgresql":
            self.engine = postgres.make_engine(url, lock_wait_s=settings.lock_wait_s, pool_size=pool_size)
        else:
            self.engine = sqlite.make_engine(Path(url.database or ""), busy_s=min(_BUSY_S, settings.lock_wait_s))

    @classmethod
    def open(
        cls, url: str | None = None, *, settings: JobsSettings | None = None, pool_size: int = 5, check: bool = True
    ) -> Database:
        """The database at `url`, else at MMRL_DATABASE_URL, else `home()/mmrl.db`. An empty one is set up.

        pool_size: connections kept open to PostgreSQL.
        Raises SchemaError for another schema version (not with check=False, which is for upgrades), ConfigError for
        an address that cannot be used, DatabaseUnavailableError for a server that does not answer.
        """
        from mmrl.jobs.schema import check_schema

        database = cls(parse_url(url), settings or load_settings(), pool_size=pool_size)
        if check:
            try:
                check_schema(database)
            except BaseException:
                database.close()
                raise
        return database

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sa.Connection]:
        """A transaction that writes: committed at the end, rolled back by an exception.

        On SQLite it waits for the write lock first, at most `lock_wait_s`; later nothing in it can find a lock.
        durable: on SQLite, whether it is on the disk before this returns; else a cut of power may take it back, whole,
        with what came after it. That is for workers, whose runs end with the same cut. PostgreSQL keeps all.
        Raises DatabaseUnavailableError.
        """
        with self._errors(), self._begun(durable=durable) as connection:
            yield connection

    def try_to_write(self, write: Callable[[sa.Connection], _T]) -> _T | None:
        """What `write` gives in a transaction that its caller can do without, as one who only reads: no lock is waited
        for but for a moment, and a database that takes no writes from here (a standby, one that is set to be read
        only, a user without the right) stays as it is. None where nothing was written.
        """
        try:
            with self._errors(), self._begun(durable=False, wait_s=_MOMENT_S) as connection:
                if self.dialect == "postgresql":
                    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {int(_MOMENT_S * 1000)}")
                return write(connection)
        except (DatabaseUnavailableError, sa.exc.DBAPIError):
            return None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads; writers do not hold it up."""
        with self._errors(), self._begun(read_only=True) as connection:
            yield connection

    @contextmanager
    def statement(self) -> Iterator[Any]:
        """psycopg's connection for one statement that is whole in itself: no round trips to begin and to commit."""
        import psycopg

        with self._errors():
            proxied = self.engine.raw_connection()
            driver: Any = proxied.driver_connection
            try:
                driver.autocommit = True
                yield driver
                driver.autocommit = False
            except psycopg.Error as error:
                is_gone = driver.closed
                proxied.invalidate(error)
                if is_gone or isinstance(error, psycopg.OperationalError):
                    raise self._explained(error) from error
                raise
            except BaseException:
                proxied.invalidate()  # it may still commit by itself, or be in the middle of an answer
                raise
            finally:
                proxied.close()

    @contextmanager
    def migrating(self) -> Iterator[sa.Connection]:
        """A transaction that may rebuild tables; on SQLite that needs foreign keys unchecked until its end."""
        with self._errors(), self._begun(checks_keys=self.dialect != "sqlite") as connection:
            yield connection
            if self.dialect == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                raise MmrlError(f"the upgrade of {self.shown_url} would leave rows without their owners; undone")

    def now(self, connection: sa.Connection | None = None) -> float:
        """Seconds since 1970 by the database's clock."""
        if connection is None:
            with self.reading() as own:
                return self.now(own)
        return float(connection.execute(_CLOCK).scalar_one())

    def close(self) -> None:
        self.engine.dispose()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self.shown_url!r})"

    @contextmanager
    def _begun(
        self, *, read_only: bool = False, durable: bool = True, checks_keys: bool = True, wait_s: float | None = None
    ) -> Iterator[sa.Connection]:
        """wait_s: for SQLite's lock, in place of lock_wait_s."""
        wait_s = self.settings.lock_wait_s if wait_s is None else wait_s
        deadline = time.monotonic() + wait_s
        while True:
            connection = self.engine.connect()
            try:
                if self.dialect == "sqlite":
                    sqlite.set_busy(connection, min(_BUSY_S, wait_s))
                if read_only:
                    connection = connection.execution_options(**{sqlite.READ_ONLY: True})
                elif self.dialect == "sqlite":
                    sqlite.prepare_write(connection, durable=durable, checks_keys=checks_keys)
                transaction = connection.begin()
            except sa.exc.OperationalError as error:
                connection.close()
                if not _is_locked(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(random.uniform(0.01, 0.1))
                continue
            except BaseException:
                connection.close()
                raise
            break
        with connection, transaction:
            yield connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns what the drivers raise into errors that say what to do, without any password."""
        try:
            yield
        except (*_GONE, sqlite3.OperationalError) as error:
            raise self._explained(error) from error
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise self._explained(error) from error
            if isinstance(error.orig, sqlite3.DatabaseError) and _DAMAGED.search(str(error.orig)):
                raise MmrlError(
                    f"the file of the job database {self.shown_url} is none of SQLite's, or is damaged ({error.orig}); "
                    f"move it away, put a copy in its place, or name another by {URL_VARIABLE}"
                ) from error
            raise

    def _explained(self, error: Exception) -> MmrlError:
        reason = " ".join(without(str(getattr(error, "orig", None) or error), self._secrets).split())
        if "is locked" in reason or "lock timeout" in reason:
            return DatabaseUnavailableError(
                f"the job database {self.shown_url} stayed locked for {self.settings.lock_wait_s:g} s; nothing was "
                "written; find the process that holds it, or raise lock_wait_s in jobs.yaml"
            )
        if "disk is full" in reason or "No space left" in reason:
            return DatabaseUnavailableError(
                f"disk full: the job database {self.shown_url} cannot be written ({reason}); free some space"
            )
        if "disk I/O error" in reason:
            return DatabaseUnavailableError(
                f"the disk refuses to hold the job database {self.shown_url} ({reason}), as a full one does; check its "
                "space, its quota and its health"
            )
        if "unable to open database file" in reason or "readonly database" in reason:
            return DatabaseUnavailableError(
                f"the job database {self.shown_url} cannot be opened for writing ({reason}), which SQLite needs to "
                f"read it too; mend the permissions of its folder, or name another place by MMRL_HOME or {URL_VARIABLE}"
            )
        return DatabaseUnavailableError(
            f"the job database {self.shown_url} cannot be reached: {reason}; nothing was written; check that it runs, "
            f"and what {URL_VARIABLE} says"
        )


def parse_url(text: str | None = None) -> sa.URL:
    """The address of the database. Raises ConfigError, without the text, for one that is none or of another kind."""
    text = text or os.environ.get(URL_VARIABLE) or None
    if text is None:
        return sa.URL.create("sqlite", database=str(home() / FILE_NAME))
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError(f"{URL_VARIABLE} is no address of a database; {_ALLOWED}") from None
    if postgres.is_postgres(url):
        return url
    if url.drivername in ("sqlite", "sqlite+pysqlite") and url.database and url.database != ":memory:":
        return url.set(drivername="sqlite", database=os.path.abspath(os.path.expanduser(url.database)))
    raise ConfigError(f"{URL_VARIABLE} names a {url.drivername} database that cannot hold jobs; {_ALLOWED}")


_ALLOWED = "use postgresql://USER:PASSWORD@HOST/NAME, or sqlite:////PATH for a file"


def _query_secrets(url: sa.URL) -> frozenset[str]:
    values = [url.query[key] for key in postgres.SECRET_KEYS if key in url.query]
    return frozenset(text for value in values for text in ([value] if isinstance(value, str) else value) if text)


def _is_locked(error: sa.exc.OperationalError) -> bool:
    return "database is locked" in str(error.orig) or "database table is locked" in str(error.orig)
