"""Claims a second, with all guards, beside bare ones: an UPDATE that takes the oldest row of a table of three columns.

A full claim is `Leases.claim`: the worker's row locked, its free slots counted, dependencies, time, priority and age
looked at, the job taken, attempt, event and message written. Each process has workers of 64 slots and goes on to the
next when one is full, until nothing is left; every job must have been claimed once. SQLite lies in memory where there
is a folder for it (/dev/shm), so that the numbers are not those of a disk; PostgreSQL runs without fsync.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=6000, help="jobs to claim in each run")
    parser.add_argument("--processes", type=int, nargs="*", default=[8, 20])
    parser.add_argument("--engines", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for engine in options.engines:
        for num in options.processes:
            full, bare = measure(engine, num, options.jobs)
            rows.append(
                {
                    "engine": engine,
                    "processes": num,
                    "full_per_s": round(full),
                    "bare_per_s": round(bare),
                    "ratio": round(full / bare, 3),
                }
            )
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("| engine | processes | full claims / s | bare claims / s | full / bare |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {' | '.join(str(value) for value in row.values())} |")


def measure(engine: str, num_processes: int, num_jobs: int) -> tuple[float, float]:
    """Full and bare claims a second."""
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
        full = run(claim_full, url, num_processes, num_jobs)
        return full, run(claim_bare, url, num_processes, num_jobs)
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


def run(work: Any, url: str, num_processes: int, num_jobs: int) -> float:
    """Claims a second from the moment at which all processes are ready. Raises if a job was claimed twice or never."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(num_processes), context.Queue()
    processes = [
        context.Process(target=work, args=(url, index, num_jobs, barrier, results)) for index in range(num_processes)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    claimed = Counter(job for _, _, jobs in found for job in jobs)
    if len(claimed) != num_jobs or max(claimed.values()) != 1:
        raise RuntimeError(f"{num_jobs} jobs: {len(claimed)} were claimed, one {max(claimed.values())} times")
    return num_jobs / (max(end for _, end, _ in found) - min(begin for begin, _, _ in found))


def claim_full(url: str, index: int, num_jobs: int, barrier: Any, results: Any) -> None:
    with Database.open(url, settings=SETTINGS) as database:
        info = WorkerInfo(host=f"host-{index}", boot_id="b", pid=index, pid_start_time=0.0, cpus=SLOTS)
        workers = [Leases(database) for _ in range(num_jobs // SLOTS + 1)]
        for worker in workers:
            worker.register(info)
        barrier.wait()
        begin, jobs = time.monotonic(), []
        for worker in workers:
            full = len(jobs) + SLOTS
            while len(jobs) < full and (lease := worker.claim()) is not None:
                jobs.append(lease.job_id)
            if len(jobs) < full:
                break
        results.put((begin, time.monotonic(), jobs))


def claim_bare(url: str, index: int, _num_jobs: int, barrier: Any, results: Any) -> None:
    """The drivers alone."""
    (_bare_sqlite if url.startswith("sqlite") else _bare_postgres)(url, f"worker-{index}", barrier, results)


def _bare_sqlite(url: str, name: str, barrier: Any, results: Any) -> None:
    import sqlite3

    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    statement = (
        "UPDATE bare SET state = 'starting', worker = ? WHERE id = "
        "(SELECT id FROM bare WHERE state = 'queued' ORDER BY id LIMIT 1) AND state = 'queued' RETURNING id"
    )
    barrier.wait()
    begin, jobs = time.monotonic(), []
    while True:
        connection.execute("BEGIN IMMEDIATE")
        row = connection.execute(statement, (name,)).fetchone()
        connection.execute("COMMIT")
        if row is None:
            break
        jobs.append(row[0])
    results.put((begin, time.monotonic(), jobs))


def _bare_postgres(url: str, name: str, barrier: Any, results: Any) -> None:
    import psycopg

    statement = (
        "WITH picked AS MATERIALIZED (SELECT id FROM bare WHERE state = 'queued' ORDER BY id LIMIT 1 "
        "FOR UPDATE SKIP LOCKED) UPDATE bare SET state = 'starting', worker = %s FROM picked "
        "WHERE bare.id = picked.id RETURNING bare.id"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        barrier.wait()
        begin, jobs = time.monotonic(), []
        while (row := connection.execute(statement, (name,)).fetchone()) is not None:
            jobs.append(row[0])
        results.put((begin, time.monotonic(), jobs))


if __name__ == "__main__":
    main()
