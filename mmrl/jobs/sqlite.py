"""SQLite as the job database: its settings, its way to begin, its clock, and where it may not lie."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mmrl.errors import ConfigError

# SQLite 3.40's unixepoch('subsec') gives NULL without an error; julianday is exact to 0.05 ms.
CLOCK = "((julianday('now') - 2440587.5) * 86400.0)"
READ_ONLY = "mmrl_read_only"

_NETWORK_FILESYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2", "gfs2"),
    *("fuse.sshfs", "fuse.s3fs", "fuse.glusterfs", "fuse.ceph", "fuse.gcsfuse", "fuse.rclone", "fuse.juicefs"),
    *("fuse.mountpoint-s3", "fuse.davfs", "fuse.moosefs", "orangefs", "pvfs2", "wekafs", "panfs"),
}
_OCTAL = re.compile(r"\\([0-7]{3})")


def make_engine(path: Path, *, busy_s: float) -> sa.Engine:
    """An engine on the file, whose folder is made. Transactions take the write lock when they begin, unless the
    connection has the execution option READ_ONLY.

    Raises ConfigError for a path on a network filesystem.
    """
    refuse_network_filesystem(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    url = sa.URL.create("sqlite+pysqlite", database=str(path))
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": busy_s}, pool_size=8, max_overflow=32)

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # pysqlite begins no transactions of its own
        # The wait comes first: to change the journal's mode takes a lock too.
        connection.execute(f"PRAGMA busy_timeout = {int(busy_s * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        is_reading = connection.get_execution_options().get(READ_ONLY)
        connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")

    return engine


def set_busy(connection: sa.Connection, seconds: float) -> None:
    """How long SQLite itself waits for a lock on this connection from now on."""
    driver: Any = connection.connection.driver_connection
    if connection.info.get("busy_s") != seconds:
        driver.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")
        connection.info["busy_s"] = seconds


def prepare_write(connection: sa.Connection, *, durable: bool, checks_keys: bool) -> None:
    """Settings that SQLite heeds only before a transaction begins, on the driver's connection, which begins none.

    Only where they differ from the last ones: to set foreign_keys makes SQLite prepare every statement anew.
    """
    wanted = {"synchronous": "FULL" if durable else "NORMAL", "foreign_keys": "ON" if checks_keys else "OFF"}
    driver: Any = connection.connection.driver_connection
    for name, value in wanted.items():
        if connection.info.get(name) != value:
            driver.execute(f"PRAGMA {name} = {value}")
            connection.info[name] = value


def refuse_network_filesystem(path: Path) -> None:
    """Raises ConfigError where the file would lie on a filesystem that other hosts share: WAL needs one host."""
    kind = filesystem_of(path)
    if kind in _NETWORK_FILESYSTEMS:
        raise ConfigError(
            f"the job database {path} would lie on a network filesystem ({kind}), on which SQLite loses writes; set "
            "MMRL_DATABASE_URL to a PostgreSQL (postgresql://USER@HOST/NAME) or to a local file (sqlite:////PATH)"
        )


def filesystem_of(path: Path, *, mounts: str | None = None) -> str:
    """The type of the filesystem that holds a path, as mountinfo names it; '' where that cannot be told.

    mounts: the text of mountinfo, for tests.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""
    target = os.path.realpath(path)
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, types = left.split(" "), right.split(" ")
        if len(fields) < 5 or not types[0]:
            continue
        mount = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        is_above = target == mount or target.startswith(mount.rstrip("/") + "/")
        if is_above and len(mount) >= len(best):
            best, kind = mount, types[0]
    return kind
