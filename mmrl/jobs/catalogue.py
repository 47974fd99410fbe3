"""The data sets of the registry as rows, for lists, owners and lineage. The files are the registry's alone.

A version's row says what its manifest says; `sync` makes rows of all that the registry holds, so a catalogue that is
behind, or new, is mended by it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.data.serialise import canonical
from mmrl.errors import MmrlError, NotFoundError
from mmrl.jobs import tables_catalogue as tables
from mmrl.jobs.database import Database
from mmrl.jobs.ids import new_id
from mmrl.jobs.records import DatasetRow
from mmrl.jobs.rows import some_time


class Catalogue:
    def __init__(self, database: Database, registry: DatasetRegistry | None = None) -> None:
        self.database = database
        self.registry = registry or DatasetRegistry()

    def sync(self) -> int:
        """Brings the rows in step with the registry: every version has one, the current ones are marked, versions
        whose files are gone are missing. Gives the number of versions."""
        with self.database.transaction() as connection:
            return self._sync(connection)

    def try_to_sync(self) -> None:
        """As `sync`, for one who only reads: a database that takes no writes stays as it is."""
        self.database.try_to_write(self._sync)

    def note(self, info: DatasetInfo, *, owner_id: str | None = None) -> DatasetRow:
        """Writes down a version that was registered just now; it is the current one of its name."""
        table = tables.datasets
        with self.database.transaction() as connection:
            connection.execute(table.update().where(table.c.name == info.name).values(is_current=False))
            self._write(connection, info, is_current=True, owner_id=owner_id)
            query = sa.select(table).where(table.c.name == info.name, table.c.version == info.version)
            return _row(connection.execute(query).one())

    def all(self, *, only_current: bool = True) -> list[DatasetRow]:
        """The data sets by name, newest version first."""
        table = tables.datasets
        query = sa.select(table).order_by(table.c.name, table.c.created_at.desc())
        if only_current:
            query = query.where(table.c.is_current)
        with self.database.reading() as connection:
            return [_row(row) for row in connection.execute(query)]

    def get(self, name: str, version: str | None = None) -> DatasetRow:
        """A version, the current one if none is named."""
        table = tables.datasets
        is_it = table.c.is_current if version is None else table.c.version == version
        with self.database.reading() as connection:
            row = connection.execute(sa.select(table).where(table.c.name == name, is_it)).first()
        if row is None:
            raise NotFoundError(f"the catalogue has no data set {name!r}{f' of version {version}' if version else ''}")
        return _row(row)

    def _sync(self, connection: sa.Connection) -> int:
        known = list(_versions(self.registry))
        connection.execute(tables.datasets.update().values(is_current=False, validation_state="missing"))
        for info, is_current in known:
            self._write(connection, info, is_current=is_current, owner_id=None)
        return len(known)

    def _write(self, connection: sa.Connection, info: DatasetInfo, *, is_current: bool, owner_id: str | None) -> None:
        dialect = postgresql if self.database.dialect == "postgresql" else sqlite
        row = {
            "id": new_id(self.database.now(connection)),
            "name": info.name,
            "version": info.version,
            "uri": str(self.registry.root.absolute() / info.name / info.version),
            "sha256": _content_hash(info),
            "format": "parquet",
            "n_rows": info.num_rows,
            "bytes": info.num_bytes,
            "is_current": is_current,
            "validation_state": "valid",
            "report": info.model_dump(mode="json"),
            "owner_id": owner_id,
            "created_at": info.created_at.timestamp(),
        }
        insert = dialect.insert(tables.datasets).values(row)
        new = {name: insert.excluded[name] for name in ("uri", "is_current", "validation_state", "report")}
        if owner_id is not None:
            new["owner_id"] = sa.func.coalesce(tables.datasets.c.owner_id, insert.excluded.owner_id)
        connection.execute(insert.on_conflict_do_update(index_elements=["name", "version"], set_=new))


def _versions(registry: DatasetRegistry) -> list[tuple[DatasetInfo, bool]]:
    """Every version that can be read, and whether it is the current one of its name. A damaged one is left out."""
    found = []
    for name in registry.names():
        for version in registry.versions(name):
            try:
                found.append((registry.find(name, version), registry.find(name).version == version))
            except MmrlError:
                continue
    return found


def _content_hash(info: DatasetInfo) -> str:
    content = canonical({name: split.sha256 for name, split in info.splits.items()})
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def _row(row: Any) -> DatasetRow:
    return DatasetRow(
        id=row.id,
        name=row.name,
        version=row.version,
        uri=row.uri,
        format=row.format,
        num_rows=row.n_rows,
        num_bytes=row.bytes,
        is_current=bool(row.is_current),
        validation_state=row.validation_state,
        report=row.report,
        owner_id=row.owner_id,
        created_at=some_time(row.created_at),
    )
