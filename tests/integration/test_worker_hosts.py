"""Workers of two machines: the silence of the other one means nothing while the database was what was silent."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from job_rows import submit

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease, WorkerInfo
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.states import JobState
from mmrl.jobs.sweeping import sweep
from mmrl.jobs.watch import Watch
from mmrl.jobs.worker.gpus import make_probe
from mmrl.jobs.worker.process_launcher import ProcessLauncher
from mmrl.jobs.worker.processes import boot_id, host_name
from mmrl.jobs.worker.recovery import Recovery

LEASE_S, BEAT_S = 1.2, 0.5


@pytest.fixture
def database(job_database: Database) -> Database:
    job_database.settings = job_database.settings.model_copy(update={"lease_s": LEASE_S, "beat_s": BEAT_S})
    return job_database


def joined(database: Database, host: str) -> Leases:
    leases = Leases(database)
    info = WorkerInfo(host=host, boot_id=boot_id(), pid=1, pid_start_time=1.0, pool="default", cpus=1, gpus=())
    leases.register(info)
    return leases


def beat_until(what: Callable[[], Any], *workers: tuple[Leases, list[Lease]]) -> Any:
    """What it gives, once that is true; the workers beat meanwhile."""
    deadline = time.monotonic() + 30.0
    while not (found := what()):
        assert time.monotonic() < deadline, "it never came"
        for leases, held in workers:
            leases.beat(held)
        time.sleep(BEAT_S / 5)
    return found


def test_a_database_gone_for_longer_than_a_lease_costs_no_run_of_another_machine(database: Database) -> None:
    """The machine here reaches the database first, then the other one; then the other one is truly gone."""
    there = joined(database, "elsewhere")
    job = submit(database)
    lease = there.claim()
    assert lease is not None
    there.launched(lease, host="elsewhere", boot_id="another", pid=1, pid_start_time=1.0)
    there.started(lease)
    here = joined(database, host_name())
    recovery = Recovery(here, {"process": ProcessLauncher()}, make_probe(), say=lambda text: None)
    beat_until(here.may_judge_others, (here, []), (there, [lease]))

    time.sleep(1.7 * LEASE_S)  # nobody can beat
    assert recovery.look(()) == [], "before its first beat"
    here.beat([])
    assert recovery.look(()) == [], "after its first beat"
    assert Jobs(database).get(job.id).state is JobState.RUNNING, "nor is it declared lost"
    assert sweep(database) == [job.id], "a reader does not know"
    assert recovery.look(()) == []
    assert not there.beat([lease])[job.id].is_superseded
    lease = there.adopt(lease)
    beat_until(here.may_judge_others, (there, [lease]), (here, []))
    assert recovery.look(()) == [], "it lives"
    assert Jobs(database).get(job.id).worker_id == there.worker_id

    [taken] = beat_until(lambda: recovery.look(()), (here, []))
    assert (taken.job_id, taken.lease.worker_id) == (job.id, here.worker_id)


def test_a_gap_of_more_than_a_beat_and_a_half_begins_a_new_watch_of_a_lease() -> None:
    watch = Watch(JobsSettings(lease_s=60.0, beat_s=10.0))
    assert not watch.is_long_enough(0.0)
    watch.begin(100.0)
    for at in range(110, 161, 10):
        assert not watch.is_long_enough(at - 0.1)
        watch.note(float(at))
    assert watch.is_long_enough(160.0)
    assert watch.is_long_enough(175.0)
    assert not watch.is_long_enough(175.1), "the next beat is late: it may be the database"
    watch.note(176.0)
    assert not watch.is_long_enough(176.0)
    for at in range(186, 237, 10):
        watch.note(float(at))
    assert watch.is_long_enough(236.0)
