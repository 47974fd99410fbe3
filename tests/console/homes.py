"""The homes in which every page of the console is tested: empty, small, broken and large.

Each is a folder to be MMRL_HOME, with a job database, run directories, data sets and images as mmrl itself writes them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa
from home_large import fill_large
from home_runs import RunInHome, grpo_job, shape_samples
from job_rows import join, new_job

from mmrl.data.images import ImageStore
from mmrl.data.registry import DatasetRegistry
from mmrl.jobs import tables
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import NewJob
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import JobState
from mmrl.jobs.transitions import change_state
from mmrl.jobs.users import Users
from mmrl.types import Sample

KINDS = ("empty", "small", "broken", "large")
NASTY = "<img src=x onerror=alert(1)> **bold** [link](javascript:alert(1))"
"""Text that must be shown as it stands wherever it comes from."""
LONG_LEASE_S = 86_400.0
"""In tests the workers of a home stay alive, however long the session takes."""


@dataclass
class Home:
    """path: for MMRL_HOME. url: of its job database; None for the file in the folder.

    jobs: ids by the names in `build_*`. users: ids by role, beside the account's own admin.
    """

    path: Path
    kind: str
    url: str | None = None
    jobs: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    datasets: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str | None]:
        """None for a variable that must not be set."""
        lease = str(LONG_LEASE_S)
        return {"MMRL_HOME": str(self.path), "MMRL_JOBS_LEASE_S": lease, "MMRL_DATABASE_URL": self.url}

    @contextmanager
    def active(self) -> Iterator[Home]:
        """Within it this process takes the folder for mmrl's home."""
        earlier = {name: os.environ.get(name) for name in self.environment}
        for name, value in self.environment.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        try:
            yield self
        finally:
            for name, value in earlier.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


def build_home(kind: str, path: Path, url: str | None = None) -> Home:
    """A home of one of KINDS in a new folder. url: of an empty database with mmrl's schema, in place of a file."""
    path.mkdir(parents=True)
    home = Home(path, kind, url)
    builders = {"empty": lambda *_: None, "small": _fill_small, "broken": _fill_broken, "large": fill_large}
    with home.active(), Database.open() as database:
        builders[kind](home, database)
    return home


def _fill_small(home: Home, database: Database) -> None:
    """A job in every state, two of them with curves, samples and checkpoints, a data set, a worker and three users."""
    samples = _add_shapes(home, database)
    _add_users(home, database)
    leases = join(database, cpus=16, gpus=("GPU-0", "GPU-1"))
    jobs = Jobs(database)

    def submitted(name: str, new: NewJob | None = None) -> str:
        home.jobs[name] = jobs.submit(new or grpo_job(name)).id
        return home.jobs[name]

    def run(name: str, *overrides: str, level: float = 1.0, until: int = 40) -> RunInHome:
        found = RunInHome(database, leases, jobs.get(submitted(name, grpo_job(name, overrides))), samples=samples)
        found.train(until, level=level)
        found.checkpoint()
        return found

    done = run("succeeded", level=0.8, until=50)
    done.train(100, level=0.8)
    done.checkpoint()
    done.writer.close("succeeded")
    done.index()
    done.end(JobState.SUCCEEDED, "finished", exit_code=0)
    running = run("running", "optim.lr=1e-4", "algorithm.group_size=4", until=60)
    running.index()
    _fail(run("failed", "seed=3", until=20), leases)
    _stop(run("paused", "seed=4"), JobState.PAUSED, "pause")
    _stop(run("cancelled", "seed=5"), JobState.CANCELLED, "cancel")
    lost = run("lost", "seed=6")
    lost.index()
    with database.transaction() as connection:
        change_state(connection, lost.job.id, JobState.LOST, cause="lease_expired", actor="test")
    stopping = run("stopping", "seed=7")
    jobs.cancel(stopping.job.id)
    leases.move(stopping.lease, JobState.STOPPING, cause="cancel")
    submitted("starting")
    assert leases.claim(home.jobs["starting"]) is not None
    home.jobs["draft"] = jobs.submit(grpo_job("draft"), as_draft=True).id
    submitted("too-large", grpo_job("too-large", gpus=8))
    submitted("no-worker", new_job("no-worker", pool="elsewhere"))
    submitted("waiting", grpo_job("waiting", after=(running.job.id,)))
    jobs.describe(home.jobs["succeeded"], tags=["baseline"], note="the first that learned")


def _fill_broken(home: Home, database: Database) -> None:
    """What is left when files go: a run without its folder, half-written lines, data and images that are gone."""
    samples = _add_shapes(home, database)
    _add_users(home, database)
    leases = join(database, cpus=16)
    jobs = Jobs(database)

    def run(name: str, until: int = 20) -> RunInHome:
        home.jobs[name] = jobs.submit(grpo_job(name)).id
        found = RunInHome(database, leases, jobs.get(home.jobs[name]), samples=samples)
        found.train(until)
        found.checkpoint()
        return found

    for name in ("no-folder", "no-checkpoint", "half-written", "no-images"):
        done = run(name)
        done.writer.close("succeeded")
        done.index()
        done.end(JobState.SUCCEEDED, "finished", exit_code=0)
    _fail(run("failed"), leases, message=f"CUDA out of memory: {NASTY}", error_class="out_of_memory")
    never = jobs.submit(new_job("never-started"))
    home.jobs["never-started"] = never.id
    lease = leases.claim(never.id)
    assert lease is not None
    leases.fail(lease, Failure("config", "config.yaml:3: unknown key 'lr'; did you mean 'optim.lr'?", 2))
    folders = {name: Path(jobs.get(job_id).run_dir) for name, job_id in home.jobs.items()}
    shutil.rmtree(folders["no-folder"])
    shutil.rmtree(folders["no-checkpoint"] / "checkpoints")
    for file in ("metrics.jsonl", "events.jsonl"):
        path = folders["half-written"] / "attempt-1" / file
        path.write_bytes(path.read_bytes()[:-25])
    (folders["half-written"] / "config.yaml").write_text("name: [half\n")
    for shard in (folders["half-written"] / "attempt-1" / "samples").iterdir():
        shard.write_bytes(shard.read_bytes()[:200])
    shutil.rmtree(folders["no-images"] / "images")
    _lose_data(home, database)
    _silence_workers(database)


def _fail(run: RunInHome, leases: Leases, *, message: str | None = None, error_class: str = "code") -> None:
    text = message or "RuntimeError: reward function 'my_reward' raised ValueError: no number in 'grey'"
    run.writer.event("failure", message=text, error="RuntimeError")
    run.folder.stderr.write_text(f"Traceback (most recent call last):\n  …\n{text}\n")
    run.writer.close("failed")
    run.index()
    leases.fail(run.lease, Failure(error_class, text, 1, retryable=False))  # type: ignore[arg-type]
    leases.release(run.lease)


def _stop(run: RunInHome, state: JobState, cause: str) -> None:
    run.writer.close("paused" if state is JobState.PAUSED else "cancelled")
    run.index()
    run.leases.move(run.lease, JobState.STOPPING, cause=cause)
    run.end(state, cause, exit_code=7)


def _add_shapes(home: Home, database: Database) -> list[Sample]:
    store = ImageStore()
    train, test = shape_samples(store, 24), shape_samples(store, 6, seed=1)
    info = DatasetRegistry().register("shapes", {"train": train, "test": test}, source="made by the tests")
    Catalogue(database).note(info, owner_id=Users(database).local().id)
    home.datasets = ("shapes",)
    return train


def _add_users(home: Home, database: Database) -> None:
    users = Users(database)
    home.users = {
        "member": users.add("Mia Member", role="member", email="mia@example.org").id,
        "viewer": users.add("Vic Viewer", role="viewer", email="vic@example.org").id,
    }
    users.create_token(home.users["member"], "laptop", scopes=["read", "submit"])


def _lose_data(home: Home, database: Database) -> None:
    """A data set whose files are gone, and one whose images are."""
    gone = DatasetRegistry().register("gone", {"train": shape_samples(ImageStore(), 3, seed=7)}, source="tests")
    Catalogue(database).note(gone)
    shutil.rmtree(DatasetRegistry().root / "gone")
    shutil.rmtree(ImageStore().root)
    Catalogue(database).sync()
    home.datasets = ("shapes", "gone")


def _silence_workers(database: Database) -> None:
    """As if the worker had been killed long ago."""
    with database.transaction() as connection:
        connection.execute(sa.update(tables.workers).values(heartbeat_at=1_700_000_000.0))
