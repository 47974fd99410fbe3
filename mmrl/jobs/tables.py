"""The tables that workers and jobs live by. Times are seconds since 1970 (UTC) by the database's clock.

Text and JSON columns are the same on both engines; states are text with a CHECK, so that a new one needs no new type.
Keys that a claim writes refer to nothing that is ever deleted, and are not checked.
The catalogue (data sets, reward functions, marks, drafts) is in `tables_catalogue`.
"""

from __future__ import annotations

import sqlalchemy as sa

from mmrl.jobs.states import HELD, Desired, JobState

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = sa.MetaData(naming_convention=NAMING)

ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
ROLLUP_STEPS = 25
"""Steps of one roll-up of metrics."""


def is_in(column: str, values: list[str]) -> str:
    """A condition in SQL: the column is one of some plain words."""
    words = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({words})"


HELD_SQL = is_in("state", sorted(HELD))

users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("oidc_iss", sa.Text),
    sa.Column("oidc_sub", sa.Text),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("email", sa.Text),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("disabled_at", sa.Double),
    sa.UniqueConstraint("oidc_iss", "oidc_sub"),
    sa.CheckConstraint(is_in("role", ["viewer", "member", "admin"]), name="role"),
)

api_tokens = sa.Table(
    "api_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False, unique=True),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
    sa.Column("last_used_at", sa.Double),
)

pools = sa.Table(
    "pools",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("capacity", sa.Integer),
    sa.CheckConstraint("capacity IS NULL OR capacity >= 0", name="capacity"),
)

workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("boot_id", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("pid_start_time", sa.Double, nullable=False),
    sa.Column("pool", sa.Text, sa.ForeignKey("pools.name"), nullable=False),
    sa.Column("cpus", sa.Integer, nullable=False),
    sa.Column("gpus", sa.JSON, nullable=False),
    sa.Column("backends", sa.JSON, nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("registered_at", sa.Double, nullable=False),
    sa.Column("heartbeat_at", sa.Double, nullable=False),
    sa.CheckConstraint(is_in("state", ["active", "draining", "dead"]), name="state"),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("owner_id", sa.Text, sa.ForeignKey("users.id"), nullable=False),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("config_sha256", sa.Text, nullable=False),
    sa.Column("code_version", sa.Text, nullable=False),
    sa.Column("data_hashes", sa.JSON, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("desired", sa.Text, nullable=False),
    sa.Column("pool", sa.Text, sa.ForeignKey("pools.name"), nullable=False),
    sa.Column("backend", sa.Text, nullable=False),
    sa.Column("cpus", sa.Integer, nullable=False),
    sa.Column("gpus", sa.Integer, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False),
    sa.Column("available_at", sa.Double, nullable=False),
    sa.Column("num_waited_for", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("retries", sa.Integer, nullable=False),
    sa.Column("lease_epoch", sa.Integer, nullable=False),
    sa.Column("worker_id", sa.Text),
    sa.Column("lease_expires_at", sa.Double),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("parent_job_id", sa.Text, sa.ForeignKey("jobs.id")),
    sa.Column("resume_checkpoint", sa.Text),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("total_steps", sa.Integer),
    sa.Column("error_class", sa.Text),
    sa.Column("error_message", sa.Text),
    sa.Column("exit_code", sa.Integer),
    sa.Column("run_dir", sa.Text, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("queued_at", sa.Double),
    sa.Column("started_at", sa.Double),
    sa.Column("finished_at", sa.Double),
    sa.Column("tags", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("note", sa.Text),
    sa.UniqueConstraint("owner_id", "idempotency_key"),
    sa.CheckConstraint(is_in("state", [state.value for state in JobState]), name="state"),
    sa.CheckConstraint(is_in("desired", [word.value for word in Desired]), name="desired"),
    sa.CheckConstraint("cpus >= 0 AND gpus >= 0", name="resources"),
)
_QUEUED = sa.text("state = 'queued' AND num_waited_for = 0")
_HELD = sa.text(HELD_SQL)
sa.Index(
    "ix_jobs_queue", jobs.c.pool, jobs.c.priority.desc(), jobs.c.id, sqlite_where=_QUEUED, postgresql_where=_QUEUED
)
sa.Index("ix_jobs_held", jobs.c.worker_id, sqlite_where=_HELD, postgresql_where=_HELD)
sa.Index("ix_jobs_state", jobs.c.state, jobs.c.id)
sa.Index("ix_jobs_name", jobs.c.name, jobs.c.id)
sa.Index("ix_jobs_parent", jobs.c.parent_job_id)

job_dependencies = sa.Table(
    "job_dependencies",
    metadata,
    sa.Column("job_id", sa.Text, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("depends_on", sa.Text, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Index("ix_job_dependencies_depends_on", "depends_on"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("job_id", sa.Text, sa.ForeignKey("jobs.id"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("backend", sa.Text, nullable=False),
    sa.Column("worker_id", sa.Text),
    sa.Column("external_id", sa.Text, unique=True),
    sa.Column("host", sa.Text),
    sa.Column("boot_id", sa.Text),
    sa.Column("pid", sa.Integer),
    sa.Column("pid_start_time", sa.Double),
    sa.Column("pgid", sa.Integer),
    sa.Column("log_uri", sa.Text),
    sa.Column("token", sa.Text, nullable=False),
    sa.Column("first_step", sa.Integer),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
    sa.Column("end_reason", sa.Text),
    sa.Column("exit_code", sa.Integer),
)

gpu_leases = sa.Table(
    "gpu_leases",
    metadata,
    sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
    sa.Column("gpu_uuid", sa.Text, nullable=False),
    sa.Column("job_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("acquired_at", sa.Double, nullable=False),
    sa.Column("released_at", sa.Double),
    sa.ForeignKeyConstraint(["job_id", "attempt"], ["attempts.job_id", "attempts.attempt"]),
)
_OPEN = sa.text("released_at IS NULL")
sa.Index("uq_gpu_leases_open", gpu_leases.c.gpu_uuid, unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN)
sa.Index("ix_gpu_leases_job", gpu_leases.c.job_id)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("job_id", sa.Text, sa.ForeignKey("jobs.id"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("step", sa.Integer, nullable=False),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("manifest_sha256", sa.Text),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("job_id", "step", "attempt"),
    sa.CheckConstraint(is_in("state", ["writing", "complete", "deleted"]), name="state"),
)

job_events = sa.Table(
    "job_events",
    metadata,
    sa.Column("id", ROW_ID, primary_key=True, autoincrement=True),
    sa.Column("job_id", sa.Text, sa.ForeignKey("jobs.id"), nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("from_state", sa.Text),
    sa.Column("to_state", sa.Text),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Index("ix_job_events_job", "job_id", "id"),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("event_id", ROW_ID, primary_key=True, autoincrement=False),
    sa.Column("channel", sa.Text, primary_key=True),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("sent_at", sa.Double),
)
_UNSENT = sa.text("sent_at IS NULL")
sa.Index("ix_outbox_unsent", outbox.c.channel, outbox.c.event_id, sqlite_where=_UNSENT, postgresql_where=_UNSENT)

duties = sa.Table(
    "duties",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("due_at", sa.Double, nullable=False),
)
"""What one of all workers does at a time, such as looking for expired leases, and when it is due next."""

metrics = sa.Table(
    "metrics",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("step", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("value", sa.Double),
    sqlite_with_rowid=False,
)

metric_rollups = sa.Table(
    "metric_rollups",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("bucket", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("num_values", sa.Integer, nullable=False),
    sa.Column("total", sa.Double),
    sa.Column("low", sa.Double),
    sa.Column("high", sa.Double),
    sa.Column("last_step", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

sample_shards = sa.Table(
    "sample_shards",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("split", sa.Text, primary_key=True),
    sa.Column("step_lo", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True),
    sa.Column("step_hi", sa.Integer, nullable=False),
    sa.Column("uri", sa.Text, nullable=False),
    sa.Column("rows", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text),
    sqlite_with_rowid=False,
)
