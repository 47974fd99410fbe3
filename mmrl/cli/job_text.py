"""Jobs as JSON and as text for people."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from mmrl.cli.output import note, print_table
from mmrl.config.secrets import redact
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job, JobEvent, PendingReason


def job_row(job: Job) -> dict[str, Any]:
    """A job as a row of JSON, without its config."""
    return {
        "id": job.id,
        "name": job.name,
        "kind": job.kind,
        "state": str(job.state),
        "desired": str(job.desired),
        "attempt": job.attempt,
        "step": job.step,
        "total_steps": job.total_steps,
        "pool": job.pool,
        "backend": job.backend,
        "cpus": job.cpus,
        "gpus": job.gpus,
        "priority": job.priority,
        "owner": job.owner_id,
        "tags": list(job.tags),
        "run_dir": job.run_dir,
        "error": job.error_message,
        "exit_code": job.exit_code,
        "created_at": time_text(job.created_at),
        "started_at": time_text(job.started_at),
        "finished_at": time_text(job.finished_at),
    }


def job_detail(jobs: Jobs, job: Job) -> dict[str, Any]:
    """A job with all that is known of it; secrets of its config left out."""
    reason = _pending(jobs, job)
    return {
        **job_row(job),
        "note": job.note,
        "after": list(job.after),
        "max_attempts": job.max_attempts,
        "retries": job.retries,
        "error_class": job.error_class,
        "worker": job.worker_id,
        "parent_job": job.parent_job_id,
        "resume_checkpoint": job.resume_checkpoint,
        "code_version": job.code_version,
        "config_sha256": job.config_sha256,
        "data_hashes": dict(job.data_hashes),
        "available_at": time_text(job.available_at),
        "pending": None
        if reason is None
        else {"code": reason.code, "message": reason.message} | {"position": reason.position},
        "attempts": [
            {
                "attempt": each.attempt,
                "backend": each.backend,
                "host": each.host,
                "started_at": time_text(each.started_at),
                "ended_at": time_text(each.ended_at),
                "end_reason": each.end_reason,
                "exit_code": each.exit_code,
            }
            for each in jobs.attempts(job.id)
        ],
        "checkpoints": [
            {"step": each.step, "attempt": each.attempt, "state": each.state, "path": each.uri}
            for each in jobs.checkpoints(job.id)
        ],
        "config": redact(dict(job.config)),
    }


def event_row(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "at": time_text(event.at),
        "attempt": event.attempt,
        "from": None if event.from_state is None else str(event.from_state),
        "to": None if event.to_state is None else str(event.to_state),
        "cause": event.cause,
        "actor": event.actor,
        **({"payload": dict(event.payload)} if event.payload else {}),
    }


def print_jobs(jobs: Sequence[Job], *, fetching: Collection[str] = (), is_filtered: bool = False) -> None:
    """fetching: ids of those that wait for their inputs."""
    if not jobs:
        note("no job is like that" if is_filtered else "no jobs; `mmrl job submit CONFIG` makes one")
        return
    rows = [
        (job.short_id, job.name, job.kind, state, job.attempt, steps_text(job), job.pool, ago(job.created_at))
        for job in jobs
        for state in [state_text(job) + (" (fetching)" if job.id in fetching else "")]
    ]
    print_table(rows, ["id", "name", "kind", "state", "attempt", "step", "pool", "created"])


def print_job(jobs: Jobs, job: Job) -> None:
    """One `name  value` line for each thing that is known."""
    resources = f"{job.cpus} cpus, {job.gpus} gpus in pool {job.pool}"
    rows: list[tuple[str, Any]] = [
        ("id", job.id),
        ("name", job.name),
        ("kind", job.kind),
        ("state", state_text(job)),
        ("step", steps_text(job)),
        ("needs", resources + (", as a Ray job" if job.backend == "ray" else "")),
        ("priority", job.priority),
        ("run dir", job.run_dir),
        ("created", f"{time_text(job.created_at)} by {job.owner_id}"),
        ("started", time_text(job.started_at)),
        ("finished", time_text(job.finished_at)),
        ("code", job.code_version),
        *((f"data {name}", version) for name, version in sorted(job.data_hashes.items())),
    ]
    reason = _pending(jobs, job)
    if reason is not None:
        rows.insert(4, ("waits", reason.message))
    if job.is_held:
        rows.insert(4, ("worker", _holder(job)))
    if job.error_message:
        rows.insert(4, ("error", f"{job.error_class}: {job.error_message}" if job.error_class else job.error_message))
    optional = (
        ("after", ", ".join(job.after)),
        ("parent", job.parent_job_id),
        ("goes on from", job.resume_checkpoint),
        ("checkpoints", _steps_of_checkpoints(jobs, job)),
        ("tags", ", ".join(job.tags)),
        ("note", job.note),
    )
    rows += [(name, value) for name, value in optional if value]
    print_table([row for row in rows if row[1] is not None], ["job", job.short_id])
    _print_history(jobs, job)


def print_lineage(jobs: Jobs, chain: Sequence[Job]) -> None:
    """From the first job to this one, and what came of it."""
    rows = [
        (
            "  " * depth + job.short_id,
            job.name,
            state_text(job),
            steps_text(job),
            job.config_sha256[:10],
            job.code_version,
            ", ".join(f"{name}@{version[:8]}" for name, version in sorted(job.data_hashes.items())) or None,
            job.resume_checkpoint,
        )
        for depth, job in enumerate(chain)
    ]
    print_table(rows, ["job", "name", "state", "step", "config", "code", "data", "goes on from"])
    children = jobs.children(chain[-1].id)
    if children:
        note(f"children: {', '.join(child.short_id for child in children)}")


def _pending(jobs: Jobs, job: Job) -> PendingReason | None:
    """What the job waits for, which may be its inputs though a worker has it; None where it waits for nothing."""
    reason = None if job.is_terminal else jobs.why_pending(job)
    return None if reason is not None and job.is_held and reason.code != "fetching" else reason


def _holder(job: Job) -> str:
    """The worker that has the job, and whether it seems to live: a lease that ran out is seen by the next worker."""
    late_s = (datetime.now(UTC) - job.lease_expires_at).total_seconds() if job.lease_expires_at is not None else 0.0
    if late_s <= 0:
        return str(job.worker_id)
    return (
        f"{job.worker_id}, whose lease ran out {late_s:.0f} s ago: it is gone or cut off; the run may go on, and "
        f"`mmrl worker start --pool {job.pool}` takes it up"
    )


def _steps_of_checkpoints(jobs: Jobs, job: Job) -> str:
    steps = [each.step for each in jobs.checkpoints(job.id) if each.state == "complete"]
    shown = ", ".join(map(str, steps)) if len(steps) <= 6 else f"{steps[0]}, {steps[1]} … {steps[-1]} ({len(steps)})"
    return f"step {shown}" if steps else ""


def state_text(job: Job) -> str:
    """The state, and what is wanted where that is something else."""
    wanted = str(job.desired)
    return str(job.state) if job.is_terminal or wanted == "run" or job.state == "paused" else f"{job.state} ({wanted})"


def steps_text(job: Job) -> str:
    return f"{job.step}/{job.total_steps}" if job.total_steps is not None else str(job.step)


def time_text(time: datetime | None) -> str | None:
    """UTC, to the second."""
    return None if time is None else f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def ago(time: datetime) -> str:
    """How long ago, in the largest unit that fits."""
    seconds = max(0.0, (datetime.now(UTC) - time).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _print_history(jobs: Jobs, job: Job) -> None:
    attempts = jobs.attempts(job.id)
    if attempts:
        print()
        columns = ["attempt", "where", "started", "ended", "reason"]
        rows = [
            (each.attempt, each.host, time_text(each.started_at), time_text(each.ended_at), each.end_reason)
            for each in attempts
        ]
        print_table(rows, columns)
    events = [event for event in jobs.events(job.id) if event.cause != "checkpoint"]
    if events:
        print()
        history = [(time_text(each.at), each.cause, _change_text(each), each.actor) for each in events[-12:]]
        print_table(history, ["event", "cause", "state", "by"])


def _change_text(event: JobEvent) -> str:
    """From which state to which; of a line without either what it says."""
    if event.from_state is None and event.to_state is None:
        return str(event.payload.get("message") or "")
    return f"{event.from_state or '-'} → {event.to_state or '-'}"
