"""A PostgreSQL server of the test process's own: on a free port of 127.0.0.1, in a folder that goes with it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

USER = "postgres"
TEMPLATE = "mmrl_template"
_MAX_CONNECTIONS = 300


class PostgresServer:
    """Made by `begin`, and it runs. PostgreSQL refuses to run as root, so root runs it as the user `postgres`."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._num_databases = 0

    @classmethod
    def begin(cls) -> PostgresServer:
        folder = Path(tempfile.mkdtemp(prefix="mmrl-pg-", dir=fast_folder()))
        if os.getuid() == 0:
            account = pwd.getpwnam(USER)
            os.chown(folder, account.pw_uid, account.pw_gid)
        server = cls(folder, _free_port())
        try:
            server._call(
                "initdb", "-D", str(server._data), "-U", USER, "-A", "trust", "-N", "--no-locale", "-E", "UTF8"
            )
            server.start()
        except BaseException:
            server.end()
            raise
        return server

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self.folder} -F -c max_connections={_MAX_CONNECTIONS}"
        log = str(self.folder / "log")
        self._call("pg_ctl", "-w", "-D", str(self._data), "-l", log, "-o", options, "start")

    def stop(self, *, mode: str = "immediate") -> None:
        """immediate: as if the machine had lost its power, but for what is on disk."""
        self._call("pg_ctl", "-w", "-D", str(self._data), "-m", mode, "stop")

    def end(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, *, template: str | None = None) -> str:
        """The address of a new database, empty or a copy of another one."""
        import psycopg

        self._num_databases += 1
        name = f"test_{self._num_databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"' + (f' TEMPLATE "{template}"' if template else ""))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{url.rpartition("/")[2]}" WITH (FORCE)')

    def create_template(self) -> None:
        """A database with mmrl's schema, to copy."""
        import psycopg

        from mmrl.jobs.database import Database

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{TEMPLATE}"')
        Database.open(self.url(TEMPLATE)).close()

    def cpu_seconds(self) -> float:
        """Processor time of the server and all its processes, those that have ended included."""
        import psutil

        parent = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        own = parent.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in parent.children(recursive=True):
            times = child.cpu_times()
            total += times.user + times.system
        return float(total)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _call(self, program: str, *words: str) -> None:
        command = [_find(program), *words]
        if os.getuid() == 0:
            command = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", *command]
        done = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            log = self.folder / "log"
            told = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} ended with {done.returncode}: {done.stdout[-2000:]}\n{told}")


def fast_folder() -> str | None:
    """Memory, where there is a folder for it: what tests write need not outlive them."""
    shared = Path("/dev/shm")
    return str(shared) if shared.is_dir() and os.access(shared, os.W_OK) else None


def _find(program: str) -> str:
    """Debian keeps the server's programs out of PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
    found = str(versions[-1]) if versions else shutil.which(program)
    if found is None:
        raise RuntimeError(
            f"PostgreSQL's {program} is not installed; these tests need it: apt-get install -y postgresql"
        )
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
