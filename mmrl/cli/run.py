"""`mmrl run`: a config as a job, with a worker for it in the foreground."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mmrl.cli.arguments import DryRunOption, OptionalConfigArgument, OverridesArgument
from mmrl.cli.forking import FromOption, load_fork
from mmrl.cli.job_rehearsal import print_preflight
from mmrl.cli.logs import VerboseOption
from mmrl.cli.output import JsonOption, note, print_json, print_table
from mmrl.errors import EXIT_INTERRUPTED, EXIT_RUN_CANCELLED, EXIT_RUN_FAILED, ConfigError

if TYPE_CHECKING:
    from mmrl.config import LoadedConfig
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.records import Job


def run(
    config: OptionalConfigArgument = None,
    overrides: OverridesArgument = None,
    dry_run: DryRunOption = False,
    begin: FromOption = None,
    verbose: VerboseOption = 0,
    json: JsonOption = False,
) -> None:
    """Run a config in a new run directory, MMRL_HOME/runs/NAME-DATE-TIME.

    It is a job that this command works on: `mmrl job` lists and stops it too. Ctrl-C ends it with a checkpoint, from
    which `mmrl job resume` goes on; a second Ctrl-C ends it at once.
    """
    from mmrl.cli.job_follow import untold_failure

    loaded, checkpoint = _load(config, overrides or [], begin)
    if dry_run:
        print_preflight(loaded, json=json)
        return
    job, is_interrupted = run_job(loaded, verbose=verbose, resume_checkpoint=checkpoint)
    if job.state == "succeeded":
        _tell(job, json=json)
        return
    why = untold_failure(job)
    if why is not None:
        note(f"error: {why}")
    if job.state != "failed":
        note(f"{job.name}: {job.state}; `mmrl job resume {job.short_id}` goes on")
    raise typer.Exit(EXIT_INTERRUPTED if is_interrupted else _exit_code(job))


def _load(config: str | None, overrides: list[str], begin: str | None) -> tuple[LoadedConfig, str | None]:
    """The config, and the checkpoint to begin at, if it is another run's."""
    from mmrl.config import load_config

    if begin is not None:
        fork = load_fork(begin, config, overrides)
        for line in fork.lines:
            note(line)
        return fork.loaded, str(fork.checkpoint)
    if config is None:
        raise ConfigError("mmrl run: CONFIG is missing; give a YAML file, or --from CHECKPOINT")
    return load_config(Path(config), overrides), None


def run_job(loaded: LoadedConfig, *, verbose: int, **settings: Any) -> tuple[Job, bool]:
    """Submits the config and works on it until it has ended or was paused; its progress goes to stderr.

    settings: what else `NewJob` takes. Returns the job as it ended, and whether Ctrl-C ended it.
    """
    from mmrl.cli.job import open_jobs
    from mmrl.cli.job_follow import Follower
    from mmrl.jobs.foreground import foreground_worker
    from mmrl.jobs.from_config import job_of

    with open_jobs() as jobs:
        job = jobs.submit(job_of(loaded.config, run_dir=_run_dir(loaded.config.name), **settings))
        note(f"{job.name}: job {job.short_id} in {job.run_dir}")
        follower = Follower(jobs, job.id, out=sys.stderr, poll_s=min(0.5, jobs.database.settings.poll_s))
        requests: list[str] = []
        worker = foreground_worker(jobs.database, job_id=job.id, cpus=job.cpus, verbose=verbose, say=_quiet)
        with sigterm_interrupts(), worker as thread:
            while True:
                try:
                    return follower.run(until=lambda: not thread.is_alive()), "ctrl-c" in requests
                except KeyboardInterrupt as request:
                    requests.append("sigterm" if request.args else "ctrl-c")
                    _stop(jobs, job, requests)


def _stop(jobs: Jobs, job: Job, requests: list[str]) -> None:
    if len(requests) == 1:
        note("interrupted: the run writes a checkpoint and ends; a second time ends it at once")
        jobs.cancel(job.id)
    else:
        jobs.kill(job.id)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM is heard like Ctrl-C: without it the run would go on when this command is gone."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("SIGTERM")

    earlier = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _tell(job: Job, *, json: bool) -> None:
    from mmrl.runs.mirror import local_folder
    from mmrl.trainer.ending import last_values

    metrics = last_values(local_folder(job.run_dir))
    if json:
        print_json({"job": job.id, "run_dir": job.run_dir, "steps": job.total_steps, "metrics": metrics})
        return
    rows = [("job", job.id), ("run_dir", job.run_dir), ("steps", job.total_steps), *sorted(metrics.items())]
    print_table(rows, ["name", "value"])


def _exit_code(job: Job) -> int:
    """A run that never began ends as `mmrl train` would have: wrong use, not found, a conflict."""
    if job.state != "failed":
        return EXIT_RUN_CANCELLED
    code = job.exit_code or 0
    return code if 0 < code < EXIT_RUN_CANCELLED else EXIT_RUN_FAILED


def _run_dir(name: str) -> str | None:
    """None where the job's own default is under an address."""
    import os

    from mmrl.jobs.submitting import RUNS_URL_VARIABLE
    from mmrl.runs.layout import new_run_dir

    return None if os.environ.get(RUNS_URL_VARIABLE) else str(new_run_dir(name).absolute())


def _quiet(_: str) -> None:
    """What the worker says of itself is nobody's concern here: the run speaks for itself."""
