"""Schema versions: what the database has, what this code needs, and the one way from the one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from mmrl.jobs.database import Database
from mmrl.jobs.errors import SchemaError

REVISIONS = ("0001", "0002", "0003")
"""All versions, oldest first; the last is the code's. Kept here so that opening a database needs no Alembic."""
HEAD = REVISIONS[-1]

# One number for all databases of mmrl on a server: upgrades of two of them wait for each other, which harms nobody.
_LOCK_KEY = 0x6D6D726C


@dataclass(frozen=True)
class SchemaStatus:
    """current: the database's version, None for an empty one. state: current, empty, older, newer or foreign."""

    url: str
    current: str | None
    head: str
    state: str


def schema_status(database: Database) -> SchemaStatus:
    """Which version the database has; changes nothing."""
    with database.reading() as connection:
        current, has_tables = _read(connection)
    if current is None:
        state = "foreign" if has_tables else "empty"
    elif current == HEAD:
        state = "current"
    else:
        state = "older" if current in REVISIONS else "newer"
    return SchemaStatus(database.shown_url, current, HEAD, state)


def check_schema(database: Database) -> None:
    """Sets an empty database up. Raises SchemaError for any version but the code's."""
    status = schema_status(database)
    if status.state == "empty":
        upgrade_schema(database)
    elif status.state == "older":
        raise SchemaError(
            f"the job database {status.url} has schema version {status.current}, this mmrl needs {HEAD}; "
            "run `mmrl db upgrade` (workers may go on meanwhile)"
        )
    elif status.state != "current":
        raise _unknown(status)


def upgrade_schema(database: Database, *, to: str = HEAD) -> tuple[str | None, str]:
    """Brings the database to version `to`, all or nothing, one process at a time; others wait and find it done.

    Returns the versions before and after. Raises SchemaError for a database of a newer mmrl or of another program.
    """
    status = schema_status(database)
    if status.state in ("newer", "foreign"):
        raise _unknown(status)
    with database.migrating() as connection:
        if database.dialect == "postgresql":
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        before, _ = _read(connection)
        if before is None or (before in REVISIONS and REVISIONS.index(before) < REVISIONS.index(to)):
            _run_migrations(connection, to)
        after, _ = _read(connection)
    assert after is not None
    if before != after and after == HEAD:
        _fill_catalogue(database)
    return before, after


def _read(connection: sa.Connection) -> tuple[str | None, bool]:
    """The version in the database, and whether there are tables at all."""
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names())
    if "alembic_version" not in names:
        return None, bool(names)
    version = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar_one_or_none()
    return version, True


def _run_migrations(connection: sa.Connection, to: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to)


def _fill_catalogue(database: Database) -> None:
    """The data sets that the home holds already."""
    from mmrl.jobs.catalogue import Catalogue

    Catalogue(database).sync()


def _unknown(status: SchemaStatus) -> SchemaError:
    if status.state == "foreign":
        return SchemaError(
            f"the job database {status.url} holds tables that are not mmrl's; name an empty database in "
            "MMRL_DATABASE_URL (`mmrl db upgrade` sets it up)"
        )
    return SchemaError(
        f"the job database {status.url} has schema version {status.current}, this mmrl knows up to {HEAD}: a newer "
        "mmrl has been here; install that version (`mmrl db upgrade` of an older one cannot go back)"
    )
