"""The worker: claims jobs that it can hold, starts them, watches them to their end. Its loop is `Worker.run`.

    beat thread    extends the leases and hears what people want of the jobs
    index thread   brings what the run directories gain into the database
    threads aside  fetch what a run takes from a store before it starts, and bring its last logs to one (`aside`)
    this thread    claims, starts, stops, takes over, and writes how runs end

A database that is away stops none of the runs: beats and writes are tried again until it is back. A worker that was
stopped for longer than its leases finds out at its next write, and writes nothing for what others have taken.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mmrl.errors import MmrlError
from mmrl.jobs.code_version import code_version
from mmrl.jobs.database import Database
from mmrl.jobs.errors import DatabaseUnavailableError, LeaseLostError
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import LeaseView, WorkerInfo
from mmrl.jobs.states import JobState
from mmrl.jobs.worker.beats import Beats
from mmrl.jobs.worker.gpus import GpuProbe, make_probe
from mmrl.jobs.worker.indexing import Indexing
from mmrl.jobs.worker.launcher import Launcher
from mmrl.jobs.worker.options import WorkerOptions
from mmrl.jobs.worker.process_launcher import ProcessLauncher
from mmrl.jobs.worker.processes import host_name, own_identity
from mmrl.jobs.worker.recovery import Recovery
from mmrl.jobs.worker.starting import start_job
from mmrl.jobs.worker.supervised import Supervised
from mmrl.jobs.worker.telemetry import Telemetry
from mmrl.jobs.worker.waiting import Waiter

SOON_S = 0.05
"""Between two looks at a run that is stopping or has just ended."""


class Worker:
    """ended: job -> the state in which it left this worker's hands."""

    def __init__(
        self,
        database: Database,
        options: WorkerOptions,
        *,
        say: Callable[[str], None] = lambda text: None,
        probe: GpuProbe | None = None,
    ) -> None:
        self.options = options
        self.leases = Leases(database)
        self.ended: dict[str, JobState] = {}
        self._say = say
        self._probe = probe or make_probe()
        self._launchers = _launchers(options, say)
        self._runs: dict[str, Supervised] = {}
        self._unowned: list[Supervised] = []
        self._waiter = Waiter()
        self._signals = 0
        self._is_draining = False
        self._draining_since = 0.0
        self._may_claim_at = 0.0
        self._look_at = 0.0
        self._hear_at = 0.0
        self._is_idle = False
        self._has_told_outage = False
        settings = database.settings
        self._settings = settings
        self._beats = Beats(
            self.leases,
            current=lambda: [run.lease for run in list(self._runs.values())],
            wake=self._waiter.wake,
            beat_s=settings.beat_s,
        )
        self._indexing = Indexing(lambda: list(self._runs.values()), every_s=min(1.0, settings.poll_s))
        self._recovery = Recovery(
            self.leases, self._launchers, self._probe, say=say, own_gpus=options.gpus, only=options.job_id
        )
        self.telemetry = Telemetry(self)

    def run(self) -> None:
        """Until it is told to end, or has done what its options ask for. Raises DatabaseUnavailableError only before
        it has joined."""
        self._join()
        try:
            with self._listening(), self.telemetry.serving(self._say):
                self._beats.start()
                self._indexing.start()
                try:
                    while not self._is_over():
                        self._round()
                        self._wait()
                finally:
                    self._indexing.stop()
                    self._beats.stop()
        finally:
            self._leave()

    def drain(self) -> None:
        """As SIGTERM does; from any thread."""
        self._signals += 1
        self._waiter.wake()

    @property
    def runs(self) -> list[Supervised]:
        return list(self._runs.values())

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def beats(self) -> Beats:
        return self._beats

    @property
    def indexing(self) -> Indexing:
        return self._indexing

    def _join(self) -> None:
        own = own_identity()
        info = WorkerInfo(
            host=host_name(),
            boot_id=own.boot_id,
            pid=own.pid,
            pid_start_time=own.start_time,
            pool=self.options.pool,
            cpus=self.options.cpus,
            gpus=self.options.gpus,
            version=code_version(),
            backends=tuple(self._launchers),  # type: ignore[arg-type]
        )
        worker_id = self.leases.register(info)
        gpus = f", {len(info.gpus)} GPUs" if info.gpus else ""
        self._say(f"worker {worker_id} in pool {info.pool}: {info.cpus} CPU slots{gpus}")

    def _leave(self) -> None:
        """What still runs is lost from now on, and not when its lease runs out."""
        with _outages_ignored():
            self.leases.bury(self.leases.worker_id)
        self._say("worker left" + (f"; {len(self._runs)} runs go on for the next one" if self._runs else ""))
        self._waiter.close()

    def _round(self) -> None:
        self._heed_signals()
        self._tell_of_outage()
        for view in self._beats.take().values():
            self._apply(view)
        for run in self.runs:
            if time.monotonic() >= run.rests_until:
                self._guarded(run, run.step)
            if run.is_done:
                self._forget(run)
        self._unowned = [run for run in self._unowned if not run.kill_unowned()]
        try:
            self._hear()
            self._take_over()
            self._claim()
        except DatabaseUnavailableError as error:
            self._note_outage(error)

    def _wait(self) -> None:
        is_busy = any(run.stop is not None or run.ended is not None for run in self.runs) or bool(self._unowned)
        until = min(self._may_claim_at, self._look_at) - time.monotonic()
        timeout_s = SOON_S if is_busy else min(self._settings.poll_s, max(0.0, until))
        self._waiter.wait([run.handle for run in self.runs if run.handle is not None], timeout_s)

    def _apply(self, view: LeaseView) -> None:
        """What a beat told of one job."""
        run = self._runs.get(view.job_id)
        if run is None or view.lease_epoch < run.lease.lease_epoch:
            return
        if view.is_held and view.lease_epoch == run.lease.lease_epoch:
            run.state = view.state
            self._guarded(run, lambda: run.obey(view))
        elif not view.is_superseded:
            self._guarded(run, lambda: self._regain(run))
        elif not run.is_done:
            self._let_go(run, view)

    def _regain(self, run: Supervised) -> None:
        """The lease ran out, the database being away or this process stopped, and nobody took the job meanwhile."""
        run.lease = self.leases.adopt(run.lease)
        run.state = JobState.RUNNING
        self._say(f"{run.lease.job.name}: the lease had run out; the run went on and is held again")

    def _let_go(self, run: Supervised, view: LeaseView) -> None:
        """Another worker has the job. Where it adopted this very attempt the run is left alone, else it is ended."""
        self._forget(run)
        is_adopted = view.attempt == run.lease.attempt and view.state not in (JobState.QUEUED, JobState.PAUSED)
        if is_adopted and view.state not in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED):
            self._say(f"{run.lease.job.name}: another worker has adopted the run")
        else:
            self._say(f"{run.lease.job.name}: the job is another's by now; what runs of it here is ended")
            self._unowned.append(run)

    def _guarded(self, run: Supervised, action: Callable[[], None]) -> None:
        """Nothing that goes wrong with one run may end the worker, and with it the watch over the others."""
        try:
            action()
        except LeaseLostError:
            self._ask_again(run)
        except DatabaseUnavailableError as error:
            self._note_outage(error)
        except Exception as error:
            run.rests_until = time.monotonic() + self._settings.poll_s
            if repr(error) != run.fault:
                self._say(f"{run.lease.job.name}: {traceback.format_exc()}")
            run.fault = repr(error)

    def _ask_again(self, run: Supervised) -> None:
        """A write was refused: how the job stands is asked at once and not at the next beat."""
        with _outages_ignored():
            self._apply(self.leases.beat([run.lease])[run.job_id])

    def _forget(self, run: Supervised) -> None:
        self._runs.pop(run.job_id, None)
        if run.end_state is not None:
            self.ended[run.job_id] = run.end_state
            self.telemetry.note_end(run.end_state)
        self._may_claim_at = 0.0

    def _hear(self) -> None:
        """What people want is asked for between beats too, which are far apart."""
        now = time.monotonic()
        if now < self._hear_at or not self._runs:
            return
        self._hear_at = now + self._settings.poll_s
        wishes = self.leases.wishes([run.job_id for run in self.runs if run.ended is None])
        if any(not self._runs[job_id].heeds(desired) for job_id, desired in wishes.items()):
            self._beats.now()
            self._waiter.wake()

    def _take_over(self) -> None:
        now = time.monotonic()
        if self._is_draining or now < self._look_at:
            return
        self._look_at = now + max(self._settings.poll_s, self._settings.lease_s / 8)
        for run in self._recovery.look(set(self._runs)):
            self._runs[run.job_id] = run

    def _claim(self) -> None:
        now = time.monotonic()
        if now < self._may_claim_at:
            return
        self._may_claim_at = now + self._settings.poll_s
        self._is_idle = False
        while not self._is_full():
            self._confirm_own_lease()
            lease = self.leases.claim(self.options.job_id)
            if lease is None:
                self._is_idle = self.options.until_idle and not self._runs and not self._has_work()
                return
            self.telemetry.note_claim()
            run = start_job(
                lease,
                launchers=self._launchers,
                leases=self.leases,
                gpus=self._probe,
                options=self.options,
                say=self._say,
                wake=self._waiter.wake,
            )
            self._runs[run.job_id] = run
            self._guarded(run, run.step)

    def _has_work(self) -> bool:
        options = self.options
        return self._recovery.has_suspects or self.leases.has_work(
            pool=options.pool, cpus=options.cpus, num_gpus=len(options.gpus), backends=tuple(self._launchers)
        )

    def _confirm_own_lease(self) -> None:
        """A worker that was stopped for long beats before it starts anything: it may be taken for dead."""
        if time.monotonic() - self._beats.last_beat > self._settings.lease_s / 2:
            self._beats.now()

    def _is_full(self) -> bool:
        if self._is_draining or self.leases.worker_state != "active":
            return True
        if self.options.once and (self._runs or self.ended):
            return True
        used = sum(1 if run.lease.job.backend == "ray" else run.lease.job.cpus for run in self.runs)
        return used >= self.options.cpus

    def _is_over(self) -> bool:
        if self._is_draining and (not self._runs or (self.options.drain == "leave" and self._signals > 0)):
            return not self._unowned
        if self._runs or self._unowned:
            return False
        if self.options.once and self.ended:
            return True
        if self.options.job_id is not None:
            return self._has_ended(self.options.job_id)
        return self.options.until_idle and self._is_idle

    def _has_ended(self, job_id: str) -> bool:
        """Whether the one job of this worker needs it no more: it has ended, or people have paused it."""
        if job_id in self.ended and self.ended[job_id] is not JobState.QUEUED:
            return True
        with _outages_ignored():
            standing = self.leases.standing(job_id)
            return standing is not None and standing[0] in (
                JobState.SUCCEEDED,
                JobState.FAILED,
                JobState.CANCELLED,
                JobState.PAUSED,
            )
        return False

    def _heed_signals(self) -> None:
        """The first one drains; a second one hands over what still runs; a third one leaves it to the next worker."""
        if self.leases.worker_state == "draining" and not self._is_draining:
            self._start_draining()
        if self.leases.worker_state == "dead" and not self._is_draining:
            self._rise()
        if self._signals and not self._is_draining:
            self._start_draining()
            with _outages_ignored():
                self.leases.set_state("draining")
        if not self._is_draining:
            return
        if self.options.drain == "handover" or self._signals == 2:
            for run in self.runs:
                if run.stop is None:
                    self._guarded(run, lambda run=run: run.request("preempt"))  # type: ignore[misc]
        self._give_back_what_never_comes()
        if self._signals > 2:
            self._runs.clear()

    def _give_back_what_never_comes(self) -> None:
        """A worker that waits for its runs has given each that waits for its inputs the grace of any run: a store that
        hangs would keep it from ending."""
        if time.monotonic() - self._draining_since < self._settings.grace_s:
            return
        for run in self.runs:
            if run.waits_for_inputs and run.stop is None:
                self._say(f"{run.lease.job.name}: its inputs did not come within {self._settings.grace_s:g} s")
                self._guarded(run, lambda run=run: run.request("preempt"))  # type: ignore[misc]

    def _rise(self) -> None:
        """Another took this worker for dead; it says that it is not."""
        with _outages_ignored():
            self.leases.set_state("active")
            self.leases.worker_state = "active"
            self._say("the worker had been taken for dead; it goes on")

    def _start_draining(self) -> None:
        self._is_draining = True
        self._draining_since = time.monotonic()
        self._say(f"draining: nothing new is claimed; {len(self._runs)} runs: {self.options.drain}")

    def _note_outage(self, error: MmrlError) -> None:
        self._beats.outage = str(error)
        self._tell_of_outage()
        self._may_claim_at = time.monotonic() + self._settings.poll_s

    def _tell_of_outage(self) -> None:
        """Once when the database goes away and once when it is back."""
        outage = self._beats.outage
        if (outage is not None) is self._has_told_outage:
            return
        self._has_told_outage = outage is not None
        self._say(f"{outage}; runs go on, and it is tried again" if outage else "the job database is back")

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """SIGTERM and SIGINT drain. In a thread other than the main one `drain` is the only way."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        earlier = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _signalled(self, *_: object) -> None:
        self.drain()


def _launchers(options: WorkerOptions, say: Callable[[str], None]) -> dict[str, Launcher]:
    launchers: dict[str, Launcher] = {"process": ProcessLauncher()}
    if options.ray_address is not None:
        from mmrl.jobs.worker.ray_launcher import RayLauncher
        from mmrl.jobs.worker.working_dir import WorkingDir

        working_dir = WorkingDir.measure(options.working_dir) if options.working_dir is not None else None
        if working_dir is not None:
            say(f"sent to the Ray cluster with each job: {working_dir}")
        launchers["ray"] = RayLauncher(options.ray_address, working_dir=working_dir)
    return launchers


@contextmanager
def _outages_ignored() -> Iterator[None]:
    try:
        yield
    except DatabaseUnavailableError:
        return
