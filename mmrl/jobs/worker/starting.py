"""From a lease to a started attempt, or to the reason why it could not be started."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping

from mmrl.errors import MmrlError, RunFailedError
from mmrl.jobs.errors import DatabaseUnavailableError
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease
from mmrl.jobs.references import resolve_references
from mmrl.jobs.retry import Failure
from mmrl.jobs.worker.gpus import GpuProbe
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.launcher import Ended, Handle, Launch, Launcher, LaunchFault, Unreachable
from mmrl.jobs.worker.options import WorkerOptions
from mmrl.jobs.worker.outcome import Outcome
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.supervised import Supervised
from mmrl.runs.ownership import AttemptClaim

_THREADS = "OMP_NUM_THREADS"


def start_job(
    lease: Lease,
    *,
    launchers: Mapping[str, Launcher],
    leases: Leases,
    gpus: GpuProbe,
    options: WorkerOptions,
    say: Callable[[str], None],
) -> Supervised:
    """The attempt that the lease is for, started. What stands in its way is how it ended, before it began."""
    folder = RunFolder.of_job(lease.job)
    launcher = launchers[lease.job.backend]
    handle: Handle | None = None
    failure: Failure | None = None
    ended: Ended | None = None
    try:
        if folder.is_begun_by(lease.job_id):
            handle = launcher.look(lease.job_id, lease.attempt, folder)
            ended = Ended(folder.exit_code(), "it had begun before") if handle is None else None
        else:
            folder.prepare(lease, resolve_references(lease.job.config, JobReads(leases.database)))
            handle = launcher.start(_launch(lease, folder, options))
        say(f"{lease.job.name}: attempt {lease.attempt} started, output in {folder.logs_dir}")
    except LaunchFault as fault:
        failure = Failure("launch", str(fault), retryable=fault.is_infrastructure)
    except (Unreachable, DatabaseUnavailableError) as error:
        failure = Failure("launch", str(error))
    except RunFailedError as error:
        failure = Failure("storage", str(error))
    except MmrlError as error:
        failure = Failure("config", str(error))
    except Exception as error:  # a job that nobody can start may not take its workers with it
        say(f"{lease.job.name}: {traceback.format_exc()}")
        failure = Failure("launch", f"{type(error).__name__}: {error}")
    return Supervised(
        lease,
        folder,
        handle,
        leases,
        gpus,
        Indexer(leases, folder),
        say,
        ended=ended if failure is None else Ended(None, failure.message),
        outcome=None if failure is None else Outcome(False, False, None, failure),
    )


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
