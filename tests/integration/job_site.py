"""A home with its job database and workers in processes of their own, with short leases; for tests of faults."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from mmrl.config import NoopConfig
from mmrl.jobs.database import Database
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import Job
from mmrl.jobs.states import TERMINAL, JobState
from mmrl.jobs.worker.processes import ProcessIdentity, end, marks, members

LEASE_S = 2.0
SETTINGS = {
    "MMRL_JOBS_LEASE_S": str(LEASE_S),
    "MMRL_JOBS_BEAT_S": "0.2",
    "MMRL_JOBS_POLL_S": "0.1",
    "MMRL_JOBS_GRACE_S": "20",
    "MMRL_JOBS_RETRY_DELAY_S": "0.1",
}
HERE = Path(__file__).parent
_OPEN_TRANSACTIONS = """SELECT count(*) FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()"""


class Site:
    """url: of the job database. Workers and trainers are ended when the site is."""

    def __init__(self, url: str, home: Path, **settings: str) -> None:
        self.home = home
        self.environment = {**SETTINGS, **settings}
        self.environment |= {"MMRL_HOME": str(home), "MMRL_DATABASE_URL": url}
        os.environ.update(self.environment)
        self.database = Database.open(url)
        self.jobs = Jobs(self.database)
        self.workers: list[subprocess.Popen[str]] = []
        self.gate = home / "gate"
        """Jobs that hold wait for this file."""
        self._num_logs = 0
        self._ids: list[str] = []

    def submit(self, *, name: str = "probe", job: Mapping[str, Any] | None = None, **noop: Any) -> Job:
        """A noop job with these settings; job: what else `NewJob` takes."""
        config = NoopConfig(name=name, noop=noop)  # type: ignore[arg-type]
        return self.add(self.jobs.submit(job_of(config, **(job or {}))))

    def submit_held(self, *, at: int, steps: int, **noop: Any) -> Job:
        """One that waits before step `at` until `open_gate`."""
        return self.submit(steps=steps, hold_at_step=at, hold_until=str(self.gate), **noop)

    def open_gate(self) -> None:
        self.gate.touch()

    def holder(self, job: Job) -> subprocess.Popen[str]:
        """The process of the worker that holds the job."""
        worker_id = self.jobs.get(job.id).worker_id
        pids = {worker.id: worker.pid for worker in Fleet(self.database).workers(include_dead=True)}
        return next(process for process in self.workers if process.pid == pids[worker_id])

    def add(self, job: Job) -> Job:
        self._ids.append(job.id)
        return job

    def worker(self, *words: str, faults: str | None = None, **environment: str) -> subprocess.Popen[str]:
        """`mmrl worker start` with these words. faults: a moment of `faulty_worker.py` at which it dies."""
        program = ["-m", "mmrl"] if faults is None else [str(HERE / "faulty_worker.py"), faults]
        command = [sys.executable, *program, "worker", "start", "--cpus", "2", "--gpus", "none", *words]
        self._num_logs += 1
        env = {**os.environ, **self.environment, **environment}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self.home / f"worker-{self._num_logs}.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, text=True, env=env, cwd=self.home)
        self.workers.append(process)
        return process

    def log(self, number: int = -1) -> str:
        """What a worker told, the last one's unless another is named, from 0."""
        index = number if number >= 0 else self._num_logs + number
        return (self.home / f"worker-{index + 1}.log").read_text()

    def until(self, what: Callable[[], Any], *, timeout_s: float = 30.0, every_s: float = 0.02) -> Any:
        """What it gives, as soon as that is true."""
        deadline = time.monotonic() + timeout_s
        while not (found := what()):
            assert time.monotonic() < deadline, f"it never came\n{self.told()}"
            time.sleep(every_s)
        return found

    def wait(self, job: Job, *states: JobState, timeout_s: float = 30.0) -> Job:
        """The job once it is in one of the states, or has ended."""
        wanted = set(states) | TERMINAL
        found = self.until(lambda: self._in(job, wanted), timeout_s=timeout_s)
        assert not states or found.state in states, f"{found.state}: {found.error_message}\n{self.told()}"
        return found

    def wait_for_step(self, job: Job, step: int, *, attempt: int = 1) -> None:
        path = Path(job.run_dir) / f"attempt-{attempt}" / "metrics.jsonl"
        self.until(lambda: path.exists() and path.read_bytes().count(b"\n") >= step)

    def trainer(self, job: Job, attempt: int = 1) -> list[ProcessIdentity]:
        """The processes of an attempt: the shell, the trainer and whatever they started."""
        return members(f"{job.id}/{attempt}")

    def freeze(self, process: subprocess.Popen[str]) -> None:
        """SIGSTOP at a moment at which the process holds no lock of the database, which would hold up everybody."""
        for _ in range(50):
            process.send_signal(signal.SIGSTOP)
            if self._is_unlocked():
                return
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        raise AssertionError("it never let go of the database")

    def _is_unlocked(self) -> bool:
        if self.database.dialect == "postgresql":
            with self.database.reading() as connection:
                return not connection.exec_driver_sql(_OPEN_TRANSACTIONS).scalar_one()
        with closing(sqlite3.connect(str(self.database.engine.url.database), timeout=0.3)) as probe:
            try:
                probe.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            probe.rollback()
        return True

    def kill_worker(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()

    def stop_workers(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.workers:
            process.wait(timeout=30)

    def transitions(self, job: Job) -> list[tuple[str, str]]:
        """Each change of the job's state as (cause, state)."""
        return [(event.cause, event.to_state.value) for event in self.jobs.events(job.id) if event.to_state is not None]

    def worker_ids(self) -> list[str]:
        """Of all workers that ever joined, oldest first."""
        return sorted(worker.id for worker in Fleet(self.database).workers(include_dead=True))

    def told(self) -> str:
        logs = [path.read_text() for path in sorted(self.home.glob("worker-*.log"))]
        return "\n----\n".join(logs)[-6000:]

    def close(self) -> None:
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        for mark, processes in marks().items():
            if mark.partition("/")[0] in self._ids:
                end(processes)
        self.database.close()

    def _in(self, job: Job, states: set[JobState]) -> Job | None:
        found = self.jobs.get(job.id)
        return found if found.state in states else None


@contextmanager
def open_sqlite_site(template: Path, folder: Path) -> Iterator[Site]:
    """Where the engine does not matter. template: a file with mmrl's schema."""
    home = folder / "home"
    home.mkdir()
    (home / "mmrl.db").write_bytes(template.read_bytes())
    with open_site(f"sqlite:///{home}/mmrl.db", home) as site:
        yield site


@contextmanager
def open_site(url: str, home: Path, **settings: str) -> Iterator[Site]:
    earlier = dict(os.environ)
    home.mkdir(exist_ok=True, parents=True)
    site = Site(url, home, **settings)
    try:
        yield site
    finally:
        site.close()
        os.environ.clear()
        os.environ.update(earlier)
