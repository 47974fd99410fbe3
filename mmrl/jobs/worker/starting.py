"""From a lease to a started attempt, or to the reason why it could not be started."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mmrl.errors import MmrlError, RunFailedError
from mmrl.jobs.errors import DatabaseUnavailableError, LeaseLostError
from mmrl.jobs.fetching import FETCHING
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease
from mmrl.jobs.references import has_references, resolve_references, stored_references
from mmrl.jobs.retry import Failure
from mmrl.jobs.worker.aside import Aside
from mmrl.jobs.worker.gpus import GpuProbe
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.launcher import Ended, Launch, Launcher, LaunchFault, Unreachable
from mmrl.jobs.worker.options import WorkerOptions
from mmrl.jobs.worker.outcome import Outcome
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.supervised import Started, Supervised
from mmrl.runs.ownership import AttemptClaim

_THREADS = "OMP_NUM_THREADS"


class Start:
    """The way from a lease to a started attempt. What the config takes of earlier jobs is looked up first, and fetched
    where it is in a store; that may take hours or hang, so it goes on aside."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        launcher: Launcher,
        leases: Leases,
        options: WorkerOptions,
        say: Callable[[str], None],
        wake: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._launcher = launcher
        self._leases = leases
        self._options = options
        self._say = say
        self._wake = wake
        self._inputs: Aside[dict[str, Any]] | None = None
        self._has_told = False

    def __call__(self, lease: Lease) -> Started | None:
        """None while its inputs are not here. What stands in its way is how the attempt ended, before it began.

        Raises LeaseLostError where the job is another's by now, DatabaseUnavailableError where that cannot be told.
        """
        try:
            return self._try(lease)
        except (LeaseLostError, DatabaseUnavailableError):
            raise
        except LaunchFault as fault:
            failure = Failure("launch", str(fault), retryable=fault.is_infrastructure)
        except Unreachable as error:
            failure = Failure("launch", str(error))
        except RunFailedError as error:
            failure = Failure("storage", str(error))
        except MmrlError as error:
            failure = Failure("config", str(error))
        except Exception as error:  # a job that nobody can start may not take its workers with it
            self._say(f"{lease.job.name}: {traceback.format_exc()}")
            failure = Failure("launch", f"{type(error).__name__}: {error}")
        return Started(None, Ended(None, failure.message), Outcome(False, False, None, failure))

    def _try(self, lease: Lease) -> Started | None:
        folder = self._folder
        if folder.is_begun_by(lease.job_id):
            handle = self._launcher.look(lease.job_id, lease.attempt, folder)
            return Started(handle, Ended(folder.exit_code(), "it had begun before") if handle is None else None)
        config = self._resolved(lease)
        if config is None:
            return None
        folder.prepare(lease, config)
        handle = self._launcher.start(_launch(lease, folder, self._options))
        self._say(f"{lease.job.name}: attempt {lease.attempt} started, output in {folder.logs_dir}")
        return Started(handle)

    def _resolved(self, lease: Lease) -> Mapping[str, Any] | None:
        """The config with what its references name; None while that is on its way."""
        config = lease.job.config
        if not has_references(config):
            return config
        if self._inputs is None:
            reads = JobReads(self._leases.database)
            self._tell_what_comes(lease, stored_references(config, reads))
            self._inputs = Aside(lambda: resolve_references(config, reads), name="mmrl-inputs", wake=self._wake)
        if not self._inputs.is_done:
            return None
        self._leases.launched(lease)  # the job may have become another's meanwhile
        try:
            return self._inputs.result()
        except DatabaseUnavailableError:
            self._inputs = None
            raise

    def _tell_what_comes(self, lease: Lease, stored: Sequence[str]) -> None:
        """Once for an attempt, in the job's history: until its inputs are here nothing else is to be seen of it."""
        if not stored or self._has_told:
            return
        message = f"fetches {', '.join(stored)}"
        self._leases.event(lease, FETCHING, {"message": message})
        self._has_told = True
        self._say(f"{lease.job.name}: {message}")


def start_job(
    lease: Lease,
    *,
    launchers: Mapping[str, Launcher],
    leases: Leases,
    gpus: GpuProbe,
    options: WorkerOptions,
    say: Callable[[str], None],
    wake: Callable[[], None],
) -> Supervised:
    """The attempt that the lease is for; its first steps start it. wake: is called when one of them may go on."""
    folder = RunFolder.of_job(lease.job)
    launcher = launchers[lease.job.backend]
    start = Start(folder, launcher=launcher, leases=leases, options=options, say=say, wake=wake)
    return Supervised(lease, folder, None, leases, gpus, Indexer(leases, folder), say, start=start)


def _launch(lease: Lease, folder: RunFolder, options: WorkerOptions) -> Launch:
    """Nothing secret stands in the command: the trainer resolves references from its own environment."""
    job = lease.job
    command = [
        *options.trainer,
        str(folder.config_file),
        "--run-dir",
        job.run_dir,
        "--resume",
        folder.resume_word(lease),
    ]
    environment = AttemptClaim(lease.attempt, lease.token).environment
    if job.backend == "process":
        environment |= {"CUDA_VISIBLE_DEVICES": ",".join(lease.gpus)} if lease.gpus else {}
        environment |= {} if os.environ.get(_THREADS) else {_THREADS: str(options.num_threads(job.cpus))}
    return Launch(lease, folder, command, environment)
