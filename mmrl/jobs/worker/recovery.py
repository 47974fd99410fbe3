"""What workers left behind: runs without a supervisor are adopted, finished, or given back to the queue.

Proof comes first. A run of this machine is looked for among its processes; one of another machine is left to the
workers there, and only where none lives is the machine taken for gone: then the owner token in the run directory keeps
a trainer that lives on after all from writing checkpoints, and the next worker on its machine ends it. After an outage
of the database every worker looks silent: others are judged only once they have had a lease to be heard of again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime

from mmrl.jobs.errors import LeaseLostError
from mmrl.jobs.leases import Leases
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import Attempt, Job, WorkerRecord
from mmrl.jobs.retry import Failure
from mmrl.jobs.states import TERMINAL, JobState
from mmrl.jobs.watch import LATE_BEATS
from mmrl.jobs.worker.gpus import GpuProbe
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.launcher import Ended, Handle, Launcher, Unreachable, mark_of
from mmrl.jobs.worker.outcome import Outcome
from mmrl.jobs.worker.processes import ProcessIdentity, boot_id, end, host_name, marks
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.supervised import Supervised

_NOT_RUNNING = TERMINAL | {JobState.DRAFT, JobState.QUEUED, JobState.PAUSED}


class Recovery:
    """launchers: by backend. own_gpus: the worker's. only: the one job that the worker may take; None is any."""

    def __init__(
        self,
        leases: Leases,
        launchers: Mapping[str, Launcher],
        gpus: GpuProbe,
        *,
        say: Callable[[str], None],
        own_gpus: Sequence[str] = (),
        only: str | None = None,
    ) -> None:
        self._leases = leases
        self._launchers = launchers
        self._gpus = gpus
        self._say = say
        self._only = only
        self._own_gpus = own_gpus
        self._suspects: dict[str, tuple[datetime, float]] = {}
        self._fleet = Fleet(leases.database)

    def look(self, own: Collection[str]) -> list[Supervised]:
        """The runs that this worker has taken over. own: the jobs that it has already.

        Raises DatabaseUnavailableError.
        """
        workers = self._fleet.workers(include_dead=True)
        self._bury_dead(workers)
        hosts: set[str] | None = None
        if self._leases.may_judge_others():  # asked after the workers were read, which may have taken an outage
            self._leases.reap()
            hosts = {worker.host for worker in workers if worker.is_alive and worker.id != self._leases.worker_id}
        taken = []
        for job, attempt in self._leases.lost_jobs():
            if job.id not in own and self._only in (None, job.id):
                found = self._take(job, attempt, hosts)
                if found is not None:
                    taken.append(found)
        self._end_orphans({*own, *(run.job_id for run in taken)})
        self._free_stray_gpus()
        return taken

    @property
    def has_suspects(self) -> bool:
        """Whether a worker of this machine looks dead and is not buried yet: what it held may come up."""
        return bool(self._suspects)

    def _bury_dead(self, workers: Collection[WorkerRecord]) -> None:
        """Workers of this machine whose process is gone need no lease to run out. One that still beats is not gone,
        whatever its process looks like from here."""
        now = time.monotonic()
        suspects = {}
        for worker in workers:
            if worker.state == "dead" or worker.host != host_name() or worker.id == self._leases.worker_id:
                continue
            if ProcessIdentity(worker.pid, worker.pid_start_time, worker.boot_id).is_alive:
                continue
            beat, since = self._suspects.get(worker.id, (worker.heartbeat_at, now))
            if beat != worker.heartbeat_at:
                beat, since = worker.heartbeat_at, now
            if now - since < self._leases.database.settings.beat_s * LATE_BEATS:
                suspects[worker.id] = (beat, since)
                continue
            lost = self._leases.bury(worker.id)
            self._say(f"worker {worker.id} (process {worker.pid}) is gone; it left {len(lost)} jobs")
        self._suspects = suspects

    def _take(self, job: Job, attempt: Attempt, hosts: Collection[str] | None) -> Supervised | None:
        """None where the job is another's to take, or cannot be judged from here now.

        hosts: on which other workers live; None where that is not known yet.
        """
        launcher = self._launchers.get(attempt.backend)
        if launcher is None:
            return None
        handle, ended, outcome = None, None, None
        try:
            folder = RunFolder.of_job(job)
            handle = launcher.find(attempt, folder)
        except Unreachable as error:
            if attempt.backend != "process" or hosts is None or attempt.host in hosts:
                return None
            ended = Ended(folder.exit_code(), f"{error}, where no worker answers any more", True)
            if ended.exit_code is None:
                failure = Failure("node_lost", f"{error}, where no worker answers any more")
                outcome = Outcome(False, False, None, failure)
        if handle is None and ended is None:
            ended = Ended(folder.exit_code(), _why_gone(attempt), True)
        return self._adopt(job, folder, handle, ended, outcome)

    def _adopt(
        self, job: Job, folder: RunFolder, handle: Handle | None, ended: Ended | None, outcome: Outcome | None
    ) -> Supervised | None:
        try:
            lease = self._leases.adopt(job)
        except LeaseLostError:
            return None  # another worker was quicker
        what = "is adopted" if handle is not None else "has ended without a supervisor"
        self._say(f"{job.name}: attempt {job.attempt} {what}")
        indexer = Indexer(self._leases, folder)
        return Supervised(
            lease,
            folder,
            handle,
            self._leases,
            self._gpus,
            indexer,
            self._say,
            JobState.RUNNING,
            ended,
            outcome=outcome,
        )

    def _free_stray_gpus(self) -> None:
        """GPUs of this machine that are leased to a job which nobody holds, once nothing is on them."""
        held = self._gpus.holders(self._own_gpus) if self._own_gpus else {}
        free = [gpu for gpu in self._own_gpus if gpu not in held]
        if free and (number := self._leases.free_stray_gpus(free)):
            self._say(f"{number} GPUs of jobs that nobody holds are free again")

    def _end_orphans(self, own: Collection[str]) -> None:
        """Kills what runs here for attempts that have ended or that others have taken the place of.

        Jobs of other databases are not known here, and left alone.
        """
        for mark, processes in marks().items():
            job_id, _, number = mark.rpartition("/")
            if job_id in own or not number.isdecimal():
                continue
            standing = self._leases.standing(job_id)
            if standing is None:
                continue
            state, attempt = standing
            if state in _NOT_RUNNING or int(number) < attempt:
                self._say(f"{len(processes)} processes of attempt {number} of job {job_id} live on; they are ended")
                end(processes)


def _why_gone(attempt: Attempt) -> str:
    if attempt.boot_id is not None and attempt.boot_id != boot_id():
        return f"{attempt.host} was started anew while {mark_of(attempt.job_id, attempt.attempt)} ran"
    return "its supervisor and all its processes are gone"
