"""Claims a second, with all guards, beside bare ones: an UPDATE that takes the oldest row of a table of three columns.

A full claim is `Leases.claim`: the worker's row locked, its free slots counted, dependencies, time, priority and age
looked at, the job taken, attempt, event and message written. Each process has workers of 64 slots and goes on to the
next when one is full, until nothing is left; every job must have been claimed once. SQLite lies in memory where there
is a folder for it (/dev/shm), so that the numbers are not those of a disk; PostgreSQL runs without fsync.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import sqlalchemy as sa
from postgres_server import TEMPLATE, PostgresServer, fast_folder

from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import WorkerInfo
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.users import Users

SETTINGS = JobsSettings(lease_s=600.0, beat_s=10.0)
SLOTS = 64


@dataclass(frozen=True)
class Speed:
    """per_s: by the clock on the wall. cpu_ms: processor time of a claim, of its process and of the server."""

    per_s: float
    cpu_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6000, help="jobs to claim in each run")
    parser.add_argument("--processes", type=int, nargs="*", default=[8, 20])
    parser.add_argument("--engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print("| engine | processes | full claims / s | bare claims / s | full / bare | full, CPU ms | bare, CPU ms |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    rows = []
    for engine, num in itertools.product(options.engines, options.processes):
        full, bare = measure(engine, num, options.jobs)
        row = {
            "engine": engine,
            "processes": num,
            "full_per_s": round(full.per_s),
            "bare_per_s": round(bare.per_s),
            "ratio": round(full.per_s / bare.per_s, 3),
            "full_cpu_ms": round(full.cpu_ms, 2),
            "bare_cpu_ms": round(bare.cpu_ms, 2),
        }
        rows.append(row)
        if not options.json:
            print(f"| {' | '.join(str(value) for value in row.values())} |", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


def measure(engine: str, num_processes: int, num_jobs: int) -> tuple[Speed, Speed]:
    """Full claims and bare ones."""
    folder = Path(tempfile.mkdtemp(prefix="mmrl-claims-", dir=fast_folder()))
    os.environ["MMRL_HOME"] = str(folder)
    server = PostgresServer.begin() if engine == "postgresql" else None
    try:
        if server is not None:
            server.create_template()
            url = server.create_database(template=TEMPLATE)
        else:
            url = f"sqlite:///{folder}/mmrl.db"
        with Database.open(url, settings=SETTINGS) as database:
            fill(database, num_jobs)
        full = run(claim_full, url, num_processes, num_jobs, server)
        return full, run(claim_bare, url, num_processes, num_jobs, server)
    finally:
        if server is not None:
            server.end()
        shutil.rmtree(folder, ignore_errors=True)


def fill(database: Database, num_jobs: int) -> None:
    """Queued jobs, and the rows of the bare table."""
    owner = Users(database).local().id
    with database.transaction() as connection:
        connection.execute(tables.pools.insert().values(name="default"))
        now = database.now(connection)
        job = {
            "kind": "noop",
            "name": "probe",
            "owner_id": owner,
            "config": {"name": "probe", "kind": "noop"},
            "config_sha256": "0" * 64,
            "code_version": "0",
            "data_hashes": {},
            "state": "queued",
            "desired": "run",
            "pool": "default",
            "backend": "process",
            "cpus": 1,
            "gpus": 0,
            "priority": 0,
            "available_at": now,
            "num_waited_for": 0,
            "attempt": 0,
            "max_attempts": 3,
            "retries": 0,
            "lease_epoch": 0,
            "step": 0,
            "run_dir": "/nowhere",
            "created_at": now,
            "queued_at": now,
        }
        connection.execute(tables.jobs.insert(), [job | {"id": f"job-{index:08d}"} for index in range(num_jobs)])
        connection.execute(sa.text("CREATE TABLE bare (id INTEGER PRIMARY KEY, state TEXT NOT NULL, worker TEXT)"))
        connection.execute(sa.text("CREATE INDEX bare_state ON bare (state, id)"))
        rows = [{"id": index} for index in range(num_jobs)]
        connection.execute(sa.text("INSERT INTO bare (id, state) VALUES (:id, 'queued')"), rows)
    if database.dialect == "postgresql":
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE"))


def run(work: Any, url: str, num_processes: int, num_jobs: int, server: PostgresServer | None) -> Speed:
    """From the moment at which all processes are ready. Raises if a job was claimed twice or never."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(num_processes + 1), context.Queue()
    processes = [
        context.Process(target=_process, args=(work, url, index, num_jobs, barrier, results))
        for index in range(num_processes)
    ]
    for process in processes:
        process.start()
    before = server.cpu_seconds() if barrier.wait() >= 0 and server is not None else 0.0
    found = [results.get(timeout=600) for _ in processes]
    cpu = sum(one.cpu for one in found) + (server.cpu_seconds() - before if server is not None else 0.0)
    for process in processes:
        process.join()
    claimed = Counter(job for one in found for job in one.jobs)
    if len(claimed) != num_jobs or max(claimed.values()) != 1:
        raise RuntimeError(f"{num_jobs} jobs: {len(claimed)} were claimed, one {max(claimed.values())} times")
    wall = max(one.end for one in found) - min(one.begin for one in found)
    return Speed(num_jobs / wall, cpu / num_jobs * 1000)


@dataclass(frozen=True)
class Share:
    """What one process did. begin, end: monotonic seconds. cpu: processor seconds."""

    begin: float
    end: float
    cpu: float
    jobs: list[Any]


def _process(work: Any, url: str, index: int, num_jobs: int, barrier: Any, results: Any) -> None:
    claims = work(url, index, num_jobs)
    next(claims)
    barrier.wait()
    begin, cpu = time.monotonic(), time.process_time()
    jobs = list(claims)
    results.put(Share(begin, time.monotonic(), time.process_time() - cpu, jobs))


def claim_full(url: str, index: int, num_jobs: int) -> Iterator[Any]:
    """None once it is ready, then the ids of jobs until none is left."""
    with Database.open(url, settings=SETTINGS) as database:
        info = WorkerInfo(host=f"host-{index}", boot_id="b", pid=index, pid_start_time=0.0, cpus=SLOTS)
        workers = [Leases(database) for _ in range(num_jobs // SLOTS + 1)]
        for worker in workers:
            worker.register(info)
        yield None
        for worker in workers:
            for _ in range(SLOTS):
                lease = worker.claim()
                if lease is None:
                    return
                yield lease.job_id


def claim_bare(url: str, index: int, _num_jobs: int) -> Iterator[Any]:
    """The same by the drivers alone."""
    return (_bare_sqlite if url.startswith("sqlite") else _bare_postgres)(url, f"worker-{index}")


def _bare_sqlite(url: str, name: str) -> Iterator[Any]:
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    statement = (
        "UPDATE bare SET state = 'starting', worker = ? WHERE id = "
        "(SELECT id FROM bare WHERE state = 'queued' ORDER BY id LIMIT 1) AND state = 'queued' RETURNING id"
    )
    yield None
    while True:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute(statement, (name,)).fetchone()
        connection.execute("COMMIT")
        if row is None:
            return
        yield row[0]


def _bare_postgres(url: str, name: str) -> Iterator[Any]:
    import psycopg

    statement = (
        "WITH picked AS MATERIALIZED (SELECT id FROM bare WHERE state = 'queued' ORDER BY id LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) UPDATE bare SET state = 'starting', worker = %s FROM picked "
        "WHERE bare.id = picked.id RETURNING bare.id"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        yield None
        while (row := connection.execute(statement, (name,)).fetchone()) is not None:
            yield row[0]


if __name__ == "__main__":
    main()
