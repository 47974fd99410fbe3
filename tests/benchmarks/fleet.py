"""A fleet on one PostgreSQL: 500 workers of 10 slots run 5,000 jobs. The database layer is real, the runs are not.

Every worker beats, looks for work while it has room, reports each step of its jobs (progress and four metrics) and
ends them, by `Leases` as a real worker does. They share a few processes and their connections, since the machine has
few cores: what is measured is the database. Printed are how late beats came (a lease lasts 60 s, a beat is due every
10 s), leases that ran out, and the processor time of the server's processes.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import sqlalchemy as sa
from claims import fill
from postgres_server import TEMPLATE, PostgresServer, fast_folder

from mmrl.jobs.database import Database
from mmrl.jobs.index_batch import IndexBatch
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease, WorkerInfo
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.states import JobState

SETTINGS = JobsSettings(lease_s=60.0, beat_s=10.0, poll_s=1.0)
SLOTS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--run-s", type=float, default=90.0, help="mean length of a run")
    parser.add_argument("--step-s", type=float, default=30.0, help="between two steps of a run")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=4, help="and connections, of each process")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = simulate(options)
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print("| what | value |\n| --- | --- |")
    for name, value in report.items():
        print(f"| {name.replace('_', ' ')} | {value} |")


def simulate(options: argparse.Namespace) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="mmrl-fleet-", dir=fast_folder()))
    os.environ["MMRL_HOME"] = str(folder)
    server = PostgresServer.begin()
    try:
        server.create_template()
        url = server.create_database(template=TEMPLATE)
        with Database.open(url, settings=SETTINGS) as database:
            fill(database, options.jobs)
            before, begin = server.cpu_seconds(), time.monotonic()
            found = _run_fleet(url, options)
            wall, cpu = time.monotonic() - begin, server.cpu_seconds() - before
            with database.reading() as connection:
                states = connection.execute(sa.text("SELECT state, count(*) FROM jobs GROUP BY state")).all()
                lost = connection.execute(
                    sa.text("SELECT count(*) FROM job_events WHERE cause = 'lease_expired'")
                ).scalar_one()
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)
    gaps = sorted(gap for gaps, _ in found for gap in gaps)
    return {
        "workers": options.workers,
        "jobs": options.jobs,
        "succeeded": dict(states).get("succeeded", 0),
        "seconds": round(wall, 1),
        "beats": len(gaps),
        "median_s_between_beats": round(gaps[len(gaps) // 2], 2),
        "longest_s_between_beats": round(gaps[-1], 2),
        "leases_that_ran_out": lost,
        "transactions_per_s": round(sum(count for _, count in found) / wall),
        "cores_of_the_database": round(cpu / wall, 2),
        "database_ms_per_transaction": round(cpu / sum(count for _, count in found) * 1000, 2),
    }


def _run_fleet(url: str, options: argparse.Namespace) -> list[tuple[list[float], int]]:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    shares = [len(range(index, options.workers, options.processes)) for index in range(options.processes)]
    processes = [context.Process(target=_host, args=(url, share, vars(options), results)) for share in shares]
    for process in processes:
        process.start()
    found = [results.get(timeout=3600) for _ in processes]
    for process in processes:
        process.join()
    return found


def _host(url: str, num_workers: int, options: dict[str, Any], results: Any) -> None:
    """Some of the workers, in this process."""
    with Database.open(url, settings=SETTINGS, pool_size=options["threads"]) as database:
        fleet = Fleet(database, num_workers, run_s=options["run_s"], step_s=options["step_s"])
        fleet.run(options["threads"])
        results.put((fleet.gaps, sum(worker.num_transactions for worker in fleet.workers)))


class Fleet:
    """Workers that share a heap of what is due next. An action is a method of one worker, and never runs twice at once
    for the same worker."""

    def __init__(self, database: Database, num_workers: int, *, run_s: float, step_s: float) -> None:
        self.database = database
        self.run_s, self.step_s = run_s, step_s
        self.gaps: list[float] = []
        self.workers = [SimulatedWorker(self) for _ in range(num_workers)]
        self._due: list[tuple[float, int, SimulatedWorker, Any, tuple[Any, ...]]] = []
        self._changed = threading.Condition()
        self._count = 0

    def at(self, when: float, worker: SimulatedWorker, action: Any, *arguments: Any) -> None:
        with self._changed:
            self._count += 1
            heapq.heappush(self._due, (when, self._count, worker, action, arguments))
            self._changed.notify()

    def run(self, num_threads: int) -> None:
        begin = time.monotonic()
        for worker in self.workers:
            self.at(begin + random.uniform(0, SETTINGS.beat_s), worker, worker.join)
        with ThreadPoolExecutor(num_threads) as pool:
            for _ in range(num_threads):
                pool.submit(self._serve)

    def _serve(self) -> None:
        while True:
            with self._changed:
                while True:
                    if all(worker.is_done for worker in self.workers):
                        self._changed.notify_all()
                        return
                    wait = self._due[0][0] - time.monotonic() if self._due else 1.0
                    if wait <= 0:
                        break
                    self._changed.wait(min(wait, 1.0))
                _, _, worker, action, arguments = heapq.heappop(self._due)
            with worker.lock:
                action(*arguments)


class SimulatedWorker:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.lock = threading.Lock()
        self.leases: dict[str, Lease] = {}
        self.worker = Leases(fleet.database)
        self.is_done = False
        self.num_transactions = 0
        self._last_beat: float | None = None

    def join(self) -> None:
        self.worker.register(WorkerInfo(host="h", boot_id="b", pid=1, pid_start_time=0.0, cpus=SLOTS))
        self._count(1)
        self.beat()
        self.look()

    def beat(self) -> None:
        if self.is_done:
            return
        views = self.worker.beat(list(self.leases.values()))
        now = time.monotonic()
        if self._last_beat is not None:
            self.fleet.gaps.append(now - self._last_beat)
        self._last_beat = now
        if not all(view.is_held for view in views.values()):
            raise RuntimeError("a lease was lost")
        self.worker.reap()
        self._count(2)
        self.fleet.at(now + SETTINGS.beat_s, self, self.beat)

    def look(self) -> None:
        """Claims what it has room for; done when there is nothing left to run or to claim."""
        while len(self.leases) < SLOTS:
            lease = self.worker.claim()
            self._count(1)
            if lease is None:
                break
            self.leases[lease.job_id] = lease
            self.worker.launched(lease, host="h", boot_id="b", log_uri="/log")
            self.worker.started(lease, pid=1, pid_start_time=0.0, pgid=1)
            self._count(2)
            now = time.monotonic()
            self.fleet.at(now + random.uniform(0.5, 1.0) * self.fleet.step_s, self, self.step, lease.job_id, 1)
            self.fleet.at(now + random.uniform(0.5, 1.5) * self.fleet.run_s, self, self.end, lease.job_id)
        if not self.leases:
            self.is_done = True
            self.worker.set_state("dead")
        elif len(self.leases) < SLOTS:
            self.fleet.at(time.monotonic() + SETTINGS.poll_s, self, self.look)

    def step(self, job_id: str, number: int) -> None:
        lease = self.leases.get(job_id)
        if lease is None:
            return
        metrics = [(number, key, random.random()) for key in ("loss", "reward", "kl", "length")]
        self.worker.index(lease, IndexBatch(metrics=metrics, step=number, total_steps=100, first_step=0))
        self._count(1)
        self.fleet.at(time.monotonic() + self.fleet.step_s, self, self.step, job_id, number + 1)

    def end(self, job_id: str) -> None:
        lease = self.leases.pop(job_id)
        was_full = len(self.leases) == SLOTS - 1
        self.worker.move(lease, JobState.SUCCEEDED, cause="finished", exit_code=0)
        self.worker.release(lease)
        self._count(2)
        if was_full:
            self.look()

    def _count(self, number: int) -> None:
        self.num_transactions += number


if __name__ == "__main__":
    main()
