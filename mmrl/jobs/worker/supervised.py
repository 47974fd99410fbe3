"""One job in the hands of a worker, from its lease to its end. The worker calls `step` again and again; nothing waits.

    its inputs fetched -> launched -> running -> (asked to stop -> pressed -> killed) -> ended
    -> its processes and GPU memory gone -> its last logs in their store -> written

Whatever the database refuses since it is away is tried again at the next step; whatever it refuses since the lease is
another's is never written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mmrl.jobs.errors import DatabaseUnavailableError, LeaseLostError
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease, LeaseView
from mmrl.jobs.retry import Failure
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.states import Desired, JobState
from mmrl.jobs.worker.gpus import GpuProbe
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.last_logs import LastLogs
from mmrl.jobs.worker.launcher import Ended, Handle
from mmrl.jobs.worker.outcome import Outcome, outcome_of
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.stop import REASONS, Reason, Stop

PRESS_S = 5.0
"""Between the second request to stop, which leaves no time, and killing."""
LINGER_S = 1.0
"""How long what a run leaves behind may take to end by itself."""


@dataclass(frozen=True)
class Started:
    """What came of starting an attempt: a handle, or how it ended before it began."""

    handle: Handle | None = None
    ended: Ended | None = None
    outcome: Outcome | None = None


@dataclass
class Supervised:
    """start: starts the attempt once its inputs are here, and gives None until then; None where that is done. handle:
    None where nothing of the attempt can be running. ended: how it ended, once it has.

    outcome: what became of it; set where it could not even be started. say: is told what a person at
    the worker wants to know. fault: the last error that nothing here foresees; it is told once, and tried again after
    `rests_until` on the monotonic clock.
    """

    lease: Lease
    folder: RunFolder
    handle: Handle | None
    leases: Leases
    gpus: GpuProbe
    indexer: Indexer
    say: Callable[[str], None]
    state: JobState = JobState.STARTING
    ended: Ended | None = None
    start: Callable[[Lease], Started | None] | None = None
    stop: Stop | None = None
    is_done: bool = False
    end_state: JobState | None = None
    fault: str = ""
    rests_until: float = 0.0
    _ended_at: float = 0.0
    outcome: Outcome | None = field(default=None, repr=False)
    _is_noted: bool = False
    _is_known: bool = False
    _told_of_gpus: bool = False
    _logs: LastLogs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name = self.lease.job.name
        self._logs = LastLogs(self.lease.job.run_dir, self.lease.attempt, lambda text: self.say(f"{name}: {text}"))

    @property
    def job_id(self) -> str:
        return self.lease.job_id

    @property
    def waits_for_inputs(self) -> bool:
        """Whether nothing of the attempt runs yet, and it may be long until it does."""
        return self.start is not None

    @property
    def settings(self) -> JobsSettings:
        return self.leases.database.settings

    def step(self, now: float | None = None) -> None:
        """Raises LeaseLostError where the job is another's, DatabaseUnavailableError where that cannot be told."""
        now = time.monotonic() if now is None else now
        if self.is_done:
            return
        if self.start is not None:
            self._begin(self.start)
        if self.start is None and self.ended is None:
            self._watch(now)
        if self.ended is not None and self._is_gone(now) and self._gpus_are_free() and self._logs.are_over():
            self._write_end()

    def obey(self, view: LeaseView) -> None:
        """Does what people want of the job, as the last beat told."""
        if view.desired in REASONS:
            self.request(REASONS[view.desired])

    def heeds(self, desired: Desired) -> bool:
        """Whether the run is being stopped for that already, or for something stronger."""
        reason = REASONS.get(desired)
        return reason is None or (self.stop is not None and self.stop.is_as_strong_as(reason))

    def request(self, reason: Reason) -> None:
        """Asks the run to stop; a stronger reason takes the place of a weaker one, never the other way round."""
        earlier = self.stop
        if (earlier is not None and earlier.is_as_strong_as(reason)) or (earlier is None and self.ended is not None):
            return
        now = time.monotonic()
        if self.state is not JobState.STOPPING and self.ended is None:
            cause = "cancel" if reason == "kill" else reason
            self.leases.move(self.lease, JobState.STOPPING, cause=cause)
            self.state = JobState.STOPPING
        self.stop = Stop(
            reason, now if earlier is None else earlier.since, None if earlier is None else earlier.pressed
        )
        self.say(f"{self.lease.job.name}: {reason} requested")
        if self.handle is None or self.ended is not None:
            return
        if reason == "kill":
            self.handle.kill()
        elif earlier is None:
            self.handle.ask_to_stop("cancel" if reason == "cancel" else "pause")
        elif reason == "cancel":
            self.handle.ask_to_stop("cancel")

    def kill_unowned(self) -> bool:
        """Ends what runs here of an attempt that another has taken the place of. True once nothing is left."""
        if self.handle is None:
            return True
        self.handle.kill()
        return self.handle.is_gone()

    def _begin(self, start: Callable[[Lease], Started | None]) -> None:
        """Nothing of the attempt runs yet: one that is to stop never starts, whatever its inputs wait for."""
        if self.stop is not None:
            self.start = None
            self.ended = Ended(None, "it was to stop before it had started")
            self.outcome = Outcome(False, True, None, Failure("launch", self.ended.reason))
            return
        started = start(self.lease)
        if started is not None:
            self.start = None
            self.handle, self.ended, self.outcome = started.handle, started.ended, started.outcome

    def _watch(self, now: float) -> None:
        assert self.handle is not None
        if not self._is_known:
            self._note_start(self.handle)
        self.ended = self.handle.poll()
        if self.ended is not None:
            self._ended_at = now
        elif self.stop is not None:
            self._press(self.stop, now)

    def _note_start(self, handle: Handle) -> None:
        """Writes down how to find the attempt, and that it runs once it does."""
        where = {"log_uri": str(self.folder.logs_dir), **handle.identity}
        if self.state is JobState.STARTING and handle.has_started:
            self.leases.started(self.lease, **where)
            self.state = JobState.RUNNING
            self._is_known = True
        elif self.state is not JobState.STARTING or not self._is_noted:
            self.leases.launched(self.lease, **where)
            self._is_noted, self._is_known = True, self.state is not JobState.STARTING

    def _press(self, stop: Stop, now: float) -> None:
        assert self.handle is not None
        grace_s = 0.0 if stop.reason == "kill" else self.settings.grace_s
        if now - stop.since < grace_s:
            return
        if stop.pressed is None and stop.reason != "kill":
            stop.pressed = now
            self.handle.press()
        elif stop.pressed is None or now - stop.pressed >= PRESS_S:
            self.handle.kill()

    def _is_gone(self, now: float) -> bool:
        """Whether nothing of the attempt runs; what does is ended."""
        if self.handle is None or self.handle.is_gone():
            return True
        if now - self._ended_at >= LINGER_S or (self.stop is not None and self.stop.reason == "kill"):
            self.handle.kill()
            return self.handle.is_gone()
        self.handle.press()
        return False

    def _gpus_are_free(self) -> bool:
        """The memory of a GPU may outlive the processes; it is given to nobody as long as it is held."""
        held = self.gpus.holders(self.lease.gpus) if self.lease.gpus else {}
        if not held:
            return True
        if not self._told_of_gpus:
            told = ", ".join(f"{uuid} by process {', '.join(map(str, pids))}" for uuid, pids in held.items())
            self.say(f"{self.lease.job.name}: waits for GPU memory that is still held: {told}")
            self.leases.event(
                self.lease, "gpu_memory_held", {"gpus": {uuid: list(pids) for uuid, pids in held.items()}}
            )
            self._told_of_gpus = True
        return False

    def _write_end(self) -> None:
        assert self.ended is not None
        if self.outcome is None:
            self.outcome = outcome_of(self.ended, self.folder)
        self._finish_index()
        if self.lease.gpus:
            self.leases.release(self.lease)
        self.end_state = self._settle(self.outcome)
        self.is_done = True
        failure = self.outcome.failure
        why = f": {failure.message}" if failure is not None and self.end_state is JobState.FAILED else ""
        self.say(f"{self.lease.job.name}: {self.end_state}{why}")

    def _finish_index(self) -> None:
        """A run directory that cannot be read keeps no job from ending; its files stay for people to look at."""
        try:
            self.indexer.finish(self.lease)
        except (LeaseLostError, DatabaseUnavailableError):
            raise
        except Exception as error:
            self.say(f"{self.lease.job.name}: its run directory cannot be indexed: {error}")
            self.leases.event(self.lease, "index_failed", {"message": str(error)[:500]})

    def _settle(self, outcome: Outcome) -> JobState:
        """The state that follows from how the run ended and from what was asked of it."""
        lease, reason = self.lease, self.stop.reason if self.stop is not None else None
        if outcome.is_success:
            if self.state is JobState.STARTING:
                self.leases.move(lease, JobState.RUNNING, cause="started")
                self.state = JobState.RUNNING
            return self.leases.move(lease, JobState.SUCCEEDED, cause="finished", exit_code=outcome.exit_code)
        assert outcome.failure is not None
        if reason in ("cancel", "kill"):
            self._be_stopping("cancel")
            return self.leases.move(lease, JobState.CANCELLED, cause="cancel", exit_code=outcome.exit_code)
        if reason == "pause" and not _is_of_the_run(outcome):
            self._be_stopping("pause")
            return self.leases.move(lease, JobState.PAUSED, cause="pause", exit_code=outcome.exit_code)
        if reason == "preempt" and not _is_of_the_run(outcome):
            self._be_stopping("preempt")
            return self.leases.move(lease, JobState.QUEUED, cause="preempted", exit_code=outcome.exit_code)
        return self.leases.fail(lease, outcome.failure)

    def _be_stopping(self, cause: str) -> None:
        if self.state is not JobState.STOPPING:
            self.leases.move(self.lease, JobState.STOPPING, cause=cause)
            self.state = JobState.STOPPING


def _is_of_the_run(outcome: Outcome) -> bool:
    """Whether the run itself failed while it was stopping, so that to go on from its checkpoint would fail again."""
    failure: Failure | None = outcome.failure
    return not outcome.was_stopped and failure is not None and failure.error_class in ("config", "data", "code")
