"""How a job comes into the database: checked, described, once for each idempotency key."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.config.base import home
from mmrl.errors import ConfigError, ConflictError, NotFoundError
from mmrl.jobs import tables
from mmrl.jobs.code_version import code_version
from mmrl.jobs.config_checks import code_keys, config_hash, refuse_literal_secrets
from mmrl.jobs.data_versions import data_versions
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.field_checks import check_fields
from mmrl.jobs.ids import new_id, short_id
from mmrl.jobs.pools import ensure_pool
from mmrl.jobs.records import Job, NewJob, User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.rows import to_seconds
from mmrl.jobs.run_dirs import Look, one_spelling, refuse_taken
from mmrl.jobs.searching import JobFilter, search_jobs
from mmrl.jobs.states import TERMINAL, Desired, JobState
from mmrl.jobs.transitions import change_state
from mmrl.runs.layout import folder_name
from mmrl.runs.mirror import is_address

RUNS_URL_VARIABLE = "MMRL_RUNS_URL"


def check_new_job(new: NewJob, user: User, database: Database) -> None:
    """Raises ConfigError for a job that cannot be, ForbiddenError for one that the user may not submit."""
    check_allowed(user, "submit", settings=database.settings)
    refuse_literal_secrets(new.config)
    check_fields(new)
    if not new.kind:
        raise ConfigError("a job needs a kind (got '')")
    if new.available_at is not None and new.available_at.tzinfo is None:
        raise ConfigError(f"the time {new.available_at.isoformat()} has no zone; add one, such as +00:00")
    keys = code_keys(new.config)
    if keys:
        try:
            check_allowed(user, "code", settings=database.settings)
        except ForbiddenError as error:
            raise ForbiddenError(
                f"{error} (keys: {', '.join(keys)}), or set members_may_run_code in jobs.yaml"
            ) from error


def insert_job(
    connection: sa.Connection,
    database: Database,
    new: NewJob,
    owner: User,
    *,
    runs_url: str | None = None,
    look: Look | None = None,
) -> str:
    """Inserts the job as a draft and gives its id; that of the first one where its idempotency key has one.

    runs_url: where its run directory lies, in place of MMRL_RUNS_URL. look: at the one that it names, see `run_dirs`.

    Raises ConflictError for a key that another config was submitted with, and for a run directory of another job that
    has not ended.
    """
    now = database.now(connection)
    job_id = new_id(now)
    ensure_pool(connection, new.pool)
    waits = _open_dependencies(connection, new.after)
    config = dict(new.config)
    sha256 = config_hash(config)
    run_dir = None if new.run_dir is None else one_spelling(new.run_dir)
    row = {
        "id": job_id,
        "kind": new.kind,
        "name": new.name,
        "owner_id": owner.id,
        "config": config,
        "config_sha256": sha256,
        "code_version": code_version(),
        "data_hashes": data_versions(config),
        "state": JobState.DRAFT.value,
        "desired": Desired.RUN.value,
        "pool": new.pool,
        "backend": new.backend,
        "cpus": new.cpus,
        "gpus": new.gpus,
        "priority": new.priority,
        "available_at": now if new.available_at is None else to_seconds(new.available_at),
        "num_waited_for": len(waits),
        "attempt": 0,
        "max_attempts": new.max_attempts,
        "retries": 0,
        "lease_epoch": 0,
        "idempotency_key": new.idempotency_key,
        "parent_job_id": new.parent_job_id,
        "resume_checkpoint": new.resume_checkpoint,
        "step": 0,
        "run_dir": default_run_dir(new.name, job_id, runs_url=runs_url) if new.run_dir is None else run_dir,
        "tags": list(new.tags),
        "note": new.note,
        "created_at": now,
    }
    dialect = postgresql if database.dialect == "postgresql" else sqlite
    insert = dialect.insert(tables.jobs).values(row)
    once = insert.on_conflict_do_nothing(index_elements=["owner_id", "idempotency_key"])
    if connection.execute(once.returning(tables.jobs.c.id)).first() is None:
        return _earlier(connection, owner.id, new, sha256)
    if run_dir is not None:
        refuse_taken(connection, job_id, run_dir, look)
    if new.after:
        links = [{"job_id": job_id, "depends_on": other} for other in dict.fromkeys(new.after)]
        connection.execute(tables.job_dependencies.insert(), links)
    return job_id


def find_alone(connection: sa.Connection, database: Database, wanted: JobFilter) -> list[Job]:
    """The newest job that fits, or none; nobody else looks for these kinds and tags until the transaction ends.

    SQLite has one writer at a time anyhow.
    """
    if database.dialect == "postgresql":
        told = hashlib.sha256(repr((wanted.kinds, wanted.tags)).encode()).digest()
        key = int.from_bytes(told[:8], "big", signed=True)
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
    return search_jobs(connection, database, wanted, limit=1)


def enqueue(connection: sa.Connection, database: Database, job_id: str, *, actor: str) -> JobState | None:
    """draft to queued; None where the job is no draft (any more)."""
    return change_state(connection, job_id, JobState.QUEUED, cause="submit", actor=actor)


def default_run_dir(name: str, job_id: str, *, runs_url: str | None = None) -> str:
    """Under runs_url, or MMRL_RUNS_URL if that is set, else under `home()/runs`."""
    folder = f"{folder_name(name)}-{short_id(job_id)}"
    base = runs_url or os.environ.get(RUNS_URL_VARIABLE)
    if base and is_address(base):
        return f"{base.rstrip('/')}/{folder}"
    return str((Path(base) if base else home() / "runs").absolute() / folder)


def _open_dependencies(connection: sa.Connection, after: Sequence[str]) -> list[str]:
    """Those of the jobs that have not succeeded yet. Their rows stay locked, so that none ends unseen meanwhile.

    Raises NotFoundError for an unknown job, ConflictError for one that can succeed no more.
    """
    table = tables.jobs
    query = sa.select(table.c.id, table.c.state).where(table.c.id.in_(after)).order_by(table.c.id)
    found: dict[str, Any] = {}
    if after:
        found = {row.id: JobState(row.state) for row in connection.execute(query.with_for_update(read=True))}
    unknown = [job_id for job_id in after if job_id not in found]
    if unknown:
        raise NotFoundError(f"after: no job {', '.join(unknown)}; `mmrl job list` shows all")
    hopeless = [job_id for job_id, state in found.items() if state in TERMINAL and state is not JobState.SUCCEEDED]
    if hopeless:
        raise ConflictError(
            f"after: job {hopeless[0]} has ended as {found[hopeless[0]]} and can succeed no more; name the job that "
            "takes its place (`mmrl job retry` makes one)"
        )
    return [job_id for job_id, state in found.items() if state is not JobState.SUCCEEDED]


def _earlier(connection: sa.Connection, owner_id: str, new: NewJob, sha256: str) -> str:
    table = tables.jobs
    query = sa.select(table.c.id, table.c.config_sha256, table.c.kind).where(
        table.c.owner_id == owner_id, table.c.idempotency_key == new.idempotency_key
    )
    row = connection.execute(query).one()
    if (row.config_sha256, row.kind) != (sha256, new.kind):
        raise ConflictError(
            f"the idempotency key {new.idempotency_key!r} was used for job {row.id} with another config; use a new key"
        )
    return str(row.id)
