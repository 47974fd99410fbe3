"""`mmrl job`: runs that wait in the database for a worker, from submission to their end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mmrl.cli.arguments import ConfigArgument, DryRunOption, OverridesArgument
from mmrl.cli.job_rehearsal import rehearse
from mmrl.cli.output import JsonOption, note, print_json

if TYPE_CHECKING:
    from mmrl.cli.job_follow import Stream
    from mmrl.errors import ConflictError
    from mmrl.jobs.errors import ForbiddenError
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.records import Job

app = typer.Typer(no_args_is_help=True, help="Submit runs to workers, watch, stop and resume them.")


_YEAR_S = 366 * 86400


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Ids and names of jobs for the shell; nothing where there is no database."""
    try:
        with open_jobs() as jobs:
            found = jobs.list(limit=200)
    except Exception:
        return []
    words = [(job.short_id, f"{job.name}, {job.state}") for job in found]
    words += [(name, "newest of this name") for name in dict.fromkeys(job.name for job in found)]
    return [pair for pair in words if pair[0].startswith(incomplete)]


def _complete_state(incomplete: str) -> list[str]:
    from mmrl.jobs.states import JobState

    return [state.value for state in JobState if state.value.startswith(incomplete)]


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Id, the end of one, or name (the newest).",
        autocompletion=complete_job,
        show_default=False,
    ),
]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Ids or names.", autocompletion=complete_job, show_default=False),
]
PoolOption = Annotated[str, typer.Option(metavar="POOL", help="The pool whose workers may take it.")]
PriorityOption = Annotated[int, typer.Option(metavar="N", help="Higher goes first; equal ones by age.")]
AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOB",
        show_default=False,
        help="Start only once that job has succeeded; may be repeated.",
        autocompletion=complete_job,
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option("--idempotency-key", metavar="KEY", show_default=False, help="The same key again gives the same job."),
]
CpusOption = Annotated[
    int | None, typer.Option(min=0, show_default=False, help="CPU slots, if not those of placement.pools.")
]
GpusOption = Annotated[
    int | None, typer.Option(min=0, show_default=False, help="GPUs, if not those of placement.pools.")
]
BackendOption = Annotated[
    str, typer.Option(metavar="process|ray", help="Started by the worker itself, or as a job of its Ray cluster.")
]


@contextmanager
def open_jobs() -> Iterator[Jobs]:
    """The database that MMRL_DATABASE_URL or MMRL_HOME names, for whom the command acts. What is lost is told so."""
    from mmrl.cli.acting import token_user
    from mmrl.jobs.database import Database
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.sweeping import sweep

    database = Database.open()
    try:
        sweep(database)
        yield Jobs(database, actor=token_user(database))
    finally:
        database.close()


@app.command()
def submit(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    pool: PoolOption = "default",
    priority: PriorityOption = 0,
    after: AfterOption = None,
    idempotency_key: KeyOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    backend: BackendOption = "process",
    name: Annotated[str | None, typer.Option(show_default=False, help="Name, if not the config's.")] = None,
    tag: Annotated[list[str] | None, typer.Option(show_default=False, help="A tag; may be repeated.")] = None,
    note_text: Annotated[str | None, typer.Option("--note", show_default=False, help="A note to the job.")] = None,
    max_attempts: Annotated[
        int, typer.Option(min=1, help="Starts in all, where machines fail; a failed run is never started again.")
    ] = 3,
    delay: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, max=_YEAR_S, help="Start no sooner than that.")
    ] = 0.0,
    run_dir: Annotated[
        str | None, typer.Option(metavar="DIR", show_default=False, help="Run directory, if not one of its own.")
    ] = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Submit a config as a job and print its id. A worker takes it: `mmrl worker start`."""
    from mmrl.config import load_config
    from mmrl.jobs.from_config import job_of

    loaded = load_config(config, overrides or ())
    with open_jobs() as jobs:
        start = datetime.now(UTC) + timedelta(seconds=delay) if delay else None
        new = job_of(
            loaded.config,
            cpus=cpus,
            gpus=gpus,
            name=name,
            pool=pool,
            priority=priority,
            after=tuple(jobs.get(each).id for each in after or ()),
            idempotency_key=idempotency_key,
            max_attempts=max_attempts,
            available_at=start,
            run_dir=None if run_dir is None else _whole_path(run_dir),
            tags=tuple(tag or ()),
            note=note_text,
            backend=_backend(backend),
        )
        if dry_run:
            rehearse(jobs, new, loaded, json=json)
            return
        job = jobs.submit(new)
        reason = jobs.why_pending(job)
    if json:
        from mmrl.cli.job_text import job_row

        print_json({**job_row(job), "pending": reason.message})
    else:
        print(job.id)
        note(f"{job.name}: {job.state}; {reason.message}")


@app.command("list")
def list_jobs(
    state: Annotated[
        list[str] | None,
        typer.Option(
            show_default=False, help="Only jobs in that state; may be repeated.", autocompletion=_complete_state
        ),
    ] = None,
    kind: Annotated[str | None, typer.Option(show_default=False, help="Only jobs of that kind.")] = None,
    pool: Annotated[str | None, typer.Option(show_default=False, help="Only jobs of that pool.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(show_default=False, help="Only jobs with that tag; may be repeated.")
    ] = None,
    search: Annotated[
        str,
        typer.Option(metavar="TEXT", show_default=False, help="Only jobs with that in name, id, note, tags or error."),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="At most so many, the newest first.")] = 20,
    json: JsonOption = False,
) -> None:
    """List jobs, the newest first."""
    from mmrl.cli.job_text import job_row, print_jobs
    from mmrl.jobs.states import JobState

    states = [_one_of(word, [str(each) for each in JobState], "--state") for word in state or ()]
    with open_jobs() as jobs:
        found = jobs.list(
            states=[JobState(word) for word in states] or None,
            kind=kind,
            pool=pool,
            tags=tag or (),
            text=search,
            limit=limit,
        )
        fetching = jobs.fetches(found)
    if json:
        print_json([job_row(job) for job in found])
    else:
        print_jobs(found, fetching=fetching, is_filtered=bool(states or kind or pool or tag or search))


@app.command()
def show(
    job: JobArgument,
    lineage: Annotated[
        bool, typer.Option("--lineage", help="The jobs that it came from, the first one first.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show a job: where it stands and why, its attempts and history."""
    from mmrl.cli.job_text import event_row, job_detail, print_job, print_lineage

    with open_jobs() as jobs:
        found = jobs.get(job)
        if lineage:
            chain = jobs.lineage(found.id)
            if json:
                print_json([job_detail(jobs, each) for each in chain])
            else:
                print_lineage(jobs, chain)
        elif json:
            print_json({**job_detail(jobs, found), "events": [event_row(each) for each in jobs.events(found.id)]})
        else:
            print_job(jobs, found)


@app.command()
def logs(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job has ended; end with its exit code.")
    ] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="What the run writes to stdout, not to stderr.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, show_default=False, help="Only that attempt.")] = None,
    tail: Annotated[int | None, typer.Option(min=0, show_default=False, help="Only so many last lines.")] = None,
) -> None:
    """Print what a job's run writes: progress and warnings."""
    from mmrl.cli.job_follow import Follower, exit_code_of, print_log, untold_failure

    if follow and attempt is not None:
        raise typer.BadParameter(
            "a job is followed over all its attempts; leave out one of both", param_hint="--attempt"
        )
    with open_jobs() as jobs:
        found = jobs.get(job)
        stream: Stream = "stdout" if stdout else "stderr"
        if not follow:
            print_log(jobs, found, stream=stream, attempt=attempt, tail=tail)
            if not jobs.may_have_begun(found.id):
                note(f"{found.name}: {found.state}, and never started; `mmrl job show {found.short_id}` tells why")
            return
        poll_s = min(jobs.database.settings.poll_s, 1.0)

        def tell(job: Job) -> None:
            note(f"{job.name}: {job.state}; {jobs.why_pending(job).message}")

        ended = Follower(jobs, found.id, out=sys.stdout, poll_s=poll_s, stream=stream, tail=tail, tell=tell).run()
        never = "" if jobs.may_have_begun(ended.id) else "; it never started"
    why = untold_failure(ended)
    note(f"{ended.name}: {ended.state}{never}" + (f": {why}" if why else ""))
    raise typer.Exit(exit_code_of([ended]))


@app.command()
def cancel(
    job: JobsArgument,
    now: Annotated[bool, typer.Option("--now", help="Leave no time for a last checkpoint.")] = False,
    json: JsonOption = False,
) -> None:
    """Cancel jobs. A running one writes a checkpoint and ends; what it wrote stays."""
    _change(job, lambda jobs, found: jobs.kill(found.id) if now else jobs.cancel(found.id), json=json)


@app.command()
def pause(job: JobsArgument, json: JsonOption = False) -> None:
    """Pause jobs. A running one writes a checkpoint and frees its machine; resume goes on from there."""
    _change(job, lambda jobs, found: jobs.pause(found.id), json=json)


@app.command()
def resume(job: JobsArgument, json: JsonOption = False) -> None:
    """Resume jobs. A paused or lost one goes on in its run directory; for a cancelled or failed one a child job goes on
    from its last checkpoint."""
    _change(job, lambda jobs, found: jobs.resume(found.id), json=json)


@app.command()
def retry(job: JobsArgument, json: JsonOption = False) -> None:
    """Run failed or cancelled jobs once more, from the start, each as a child job."""
    _change(job, lambda jobs, found: jobs.retry(found.id), json=json)


@app.command()
def wait(
    job: JobsArgument,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, show_default=False, help="Give up after that, with exit 1."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Wait until jobs have ended. Exit code 0: all succeeded, 6: one failed, 7: one was cancelled."""
    from mmrl.cli.job_follow import exit_code_of, wait_for
    from mmrl.cli.job_text import job_row, state_text, steps_text

    def tell(found: Job) -> None:
        why = f"; {jobs.why_pending(found).message}" if found.state in ("queued", "paused", "lost") else ""
        note(f"{found.name} {found.short_id}: {state_text(found)}, step {steps_text(found)}{why}")

    with open_jobs() as jobs:
        ids = [jobs.get(each).id for each in job]
        poll_s = min(jobs.database.settings.poll_s, 1.0)
        ended = wait_for(jobs, ids, poll_s=poll_s, timeout_s=timeout, tell=tell)
    if json:
        print_json([job_row(each) for each in ended])
    for each in ended:
        if each.error_message:
            note(f"{each.name} {each.short_id}: {each.error_message}")
    raise typer.Exit(exit_code_of(ended))


def _change(refs: list[str], change: Callable[[Jobs, Job], Job], *, json: bool) -> None:
    """Applies a change to each job; all are looked up before the first is changed. Raises the last refusal."""
    from mmrl.cli.job_text import job_row, state_text

    with open_jobs() as jobs:
        found = [jobs.get(ref) for ref in refs]
        changed, refused = _changed_each(found, lambda each: change(jobs, each))
    if json:
        print_json([job_row(after) for _, after in changed])
    else:
        for before, after in changed:
            is_child = after.id != before.id
            note(f"{before.name} {before.short_id}: " + (f"child job {after.id}" if is_child else state_text(after)))
            print(after.id)
    for error in refused[:-1]:
        note(f"error: {error}")
    if refused:
        raise refused[-1]


def _changed_each(
    found: list[Job], change: Callable[[Job], Job]
) -> tuple[list[tuple[Job, Job]], list[ConflictError | ForbiddenError]]:
    """Each job as it was and as it is, and why others stay as they are: one that has ended keeps none from changing."""
    from mmrl.errors import ConflictError
    from mmrl.jobs.errors import ForbiddenError

    changed: list[tuple[Job, Job]] = []
    refused: list[ConflictError | ForbiddenError] = []
    for before in found:
        try:
            changed.append((before, change(before)))
        except (ConflictError, ForbiddenError) as error:
            refused.append(error)
    return changed, refused


def _backend(word: str) -> Any:
    return _one_of(word, ["process", "ray"], "--backend")


def _one_of(word: str, known: list[str], option: str) -> str:
    if word not in known:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(known)}", param_hint=option)
    return word


def _whole_path(run_dir: str) -> str:
    """Workers have another working directory."""
    from mmrl.runs.mirror import is_address

    return run_dir if not run_dir or is_address(run_dir) else str(Path(run_dir).expanduser().absolute())
