"""The beat of a worker: all its leases in one statement, and how each stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from mmrl.errors import NotFoundError
from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.records import Lease, LeaseView, WorkerState
from mmrl.jobs.states import TERMINAL, Desired, JobState

_JOBS, _WORKERS = tables.jobs, tables.workers
_COLUMNS = (_JOBS.c.id, _JOBS.c.state, _JOBS.c.desired, _JOBS.c.lease_epoch, _JOBS.c.worker_id, _JOBS.c.attempt)

_LIVE = (
    _WORKERS.update()
    .where(_WORKERS.c.id == bindparam("of_worker"))
    .values(heartbeat_at=NOW)
    .returning(_WORKERS.c.state, _WORKERS.c.heartbeat_at)
)
# Rows are locked in the order of their ids, as everywhere, so that two statements never wait for each other.
_MINE = (
    sa.select(_JOBS.c.id)
    .where(
        sa.tuple_(_JOBS.c.id, _JOBS.c.lease_epoch).in_(bindparam("pairs", expanding=True)),
        _JOBS.c.worker_id == bindparam("of_worker"),
        sa.text(tables.HELD_SQL),
    )
    .order_by(_JOBS.c.id)
    .with_for_update()
    .scalar_subquery()
)
_EXTEND = (
    _JOBS.update()
    .where(_JOBS.c.id.in_(_MINE))
    .values(lease_expires_at=NOW + bindparam("lease_s", type_=sa.Double))
    .returning(*_COLUMNS)
)
_LOOK = sa.select(*_COLUMNS).where(_JOBS.c.id.in_(bindparam("ids", expanding=True)))


def extend_leases(
    connection: sa.Connection, worker_id: str, leases: Sequence[Lease], *, lease_s: float
) -> tuple[WorkerState, float, dict[str, LeaseView]]:
    """The worker's state, when this was, and how each lease stands; those that are still the worker's last `lease_s`
    from now.

    Raises NotFoundError for a worker that is not registered.
    """
    state, at = beat_worker(connection, worker_id)
    if not leases:
        return state, at, {}
    pairs = sorted((lease.job_id, lease.lease_epoch) for lease in leases)
    values = {"pairs": pairs, "of_worker": worker_id, "lease_s": lease_s}
    held = {row.id: row for row in connection.execute(_EXTEND, values)}
    others: dict[str, Any] = {}
    rest = [lease.job_id for lease in leases if lease.job_id not in held]
    if rest:
        others = {row.id: row for row in connection.execute(_LOOK, {"ids": rest})}
    return (
        state,
        at,
        {
            lease.job_id: _view(lease, held.get(lease.job_id, others.get(lease.job_id)), lease.job_id in held)
            for lease in leases
        },
    )


def beat_worker(connection: sa.Connection, worker_id: str) -> tuple[WorkerState, float]:
    """Tells that the worker lives; its state, and when this was, in seconds since 1970 by the database's clock."""
    row = connection.execute(_LIVE, {"of_worker": worker_id}).first()
    if row is None:
        raise NotFoundError(f"the database knows no worker {worker_id!r}; start the worker anew, so that it registers")
    return row.state, float(row.heartbeat_at)


def _view(lease: Lease, row: Any, is_held: bool) -> LeaseView:
    if row is None:
        return LeaseView(lease.job_id, Desired.CANCEL, JobState.CANCELLED, lease.lease_epoch, False, True)
    state = JobState(row.state)
    is_same = row.lease_epoch == lease.lease_epoch and state not in TERMINAL
    is_mine = is_held or (is_same and row.worker_id == lease.worker_id and state is JobState.LOST)
    return LeaseView(lease.job_id, Desired(row.desired), state, row.lease_epoch, is_held, not is_mine, row.attempt)
