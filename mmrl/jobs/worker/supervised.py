"""One job in the hands of a worker, from its lease to its end. The worker calls `step` again and again; nothing waits.

    launched -> running -> (asked to stop -> pressed -> killed) -> ended -> its processes and GPU memory gone -> written

Whatever the database refuses since it is away is tried again at the next step; whatever it refuses since the lease is
another's is never written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from mmrl.errors import MmrlError
from mmrl.jobs.errors import DatabaseUnavailableError, LeaseLostError
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease, LeaseView
from mmrl.jobs.retry import Failure
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.states import Desired, JobState
from mmrl.jobs.worker.gpus import GpuProbe
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.launcher import Ended, Handle
from mmrl.jobs.worker.outcome import Outcome, outcome_of
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs.run_logs import bring_logs

Reason = Literal["cancel", "kill", "pause", "preempt"]
"""Why a run is to stop; preempt: the worker hands it over to another."""

PRESS_S = 5.0
"""Between the second request to stop, which leaves no time, and killing."""
LINGER_S = 1.0
"""How long what a run leaves behind may take to end by itself."""
_REASONS: dict[Desired, Reason] = {Desired.PAUSE: "pause", Desired.CANCEL: "cancel", Desired.KILL: "kill"}
_STRENGTH: dict[Reason, int] = {"preempt": 0, "pause": 1, "cancel": 2, "kill": 3}


@dataclass
class Stop:
    """since: when the run was asked, on the monotonic clock; pressed: since when it has no time left."""

    reason: Reason
    since: float
    pressed: float | None = None


@dataclass
class Supervised:
    """handle: None where nothing of the attempt can be running. ended: how it ended, once it has.

    outcome: what became of it; set from the beginning where it could not even be started. say: is told what a person at
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
    stop: Stop | None = None
    is_done: bool = False
    end_state: JobState | None = None
    fault: str = ""
    rests_until: float = 0.0
    _ended_at: float = 0.0
    outcome: Outcome | None = field(default=None, repr=False)
    _is_noted: bool = False
    _told_of_gpus: bool = False
    _has_brought_logs: bool = False

    @property
    def job_id(self) -> str:
        return self.lease.job_id

    @property
    def settings(self) -> JobsSettings:
        return self.leases.database.settings

    def step(self, now: float | None = None) -> None:
        """Raises LeaseLostError where the job is another's, DatabaseUnavailableError where that cannot be told."""
        now = time.monotonic() if now is None else now
        if self.is_done:
            return
        if self.ended is None:
            self._watch(now)
        if self.ended is not None and self._is_gone(now) and self._gpus_are_free():
            self._write_end()

    def obey(self, view: LeaseView) -> None:
        """Does what people want of the job, as the last beat told."""
        if view.desired in _REASONS:
            self.request(_REASONS[view.desired])

    def heeds(self, desired: Desired) -> bool:
        """Whether the run is being stopped for that already, or for something stronger."""
        reason = _REASONS.get(desired)
        return reason is None or (self.stop is not None and _STRENGTH[self.stop.reason] >= _STRENGTH[reason])

    def request(self, reason: Reason) -> None:
        """Asks the run to stop; a stronger reason takes the place of a weaker one, never the other way round."""
        earlier = self.stop
        is_weaker = earlier is not None and _STRENGTH[reason] <= _STRENGTH[earlier.reason]
        if is_weaker or (earlier is None and self.ended is not None):
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

    def _watch(self, now: float) -> None:
        assert self.handle is not None
        if self.state is JobState.STARTING:
            self._note_start(self.handle)
        self.ended = self.handle.poll()
        if self.ended is not None:
            self._ended_at = now
        elif self.stop is not None:
            self._press(self.stop, now)

    def _note_start(self, handle: Handle) -> None:
        """Writes down how to find the attempt, and that it runs once it does."""
        if handle.has_started:
            self.leases.started(self.lease, log_uri=str(self.folder.logs_dir), **handle.identity)
            self.state = JobState.RUNNING
        elif not self._is_noted:
            self.leases.launched(self.lease, log_uri=str(self.folder.logs_dir), **handle.identity)
            self._is_noted = True

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
        self._bring_logs()
        self._finish_index()
        if self.lease.gpus:
            self.leases.release(self.lease)
        self.end_state = self._settle(self.outcome)
        self.is_done = True
        failure = self.outcome.failure
        why = f": {failure.message}" if failure is not None and self.end_state is JobState.FAILED else ""
        self.say(f"{self.lease.job.name}: {self.end_state}{why}")

    def _bring_logs(self) -> None:
        """For a run in a store, once: people read them there. A store that is away keeps no job from ending."""
        if self._has_brought_logs:
            return
        self._has_brought_logs = True
        try:
            bring_logs(self.lease.job.run_dir, self.lease.attempt)
        except (OSError, MmrlError) as error:
            self.say(f"{self.lease.job.name}: the end of its logs stays on this machine: {error}")

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
