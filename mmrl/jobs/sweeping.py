"""Leases that ran out: found by the workers, and by whoever reads where no worker is left to look."""

from __future__ import annotations

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.states import HELD, JobState
from mmrl.jobs.transitions import change_state

_JOBS = tables.jobs
_IS_HELD = _JOBS.c.state.in_([state.value for state in HELD])
_PATIENCE = 0.5
"""Readers leave a lease that ran out to the workers for so many leases; those look four times a lease."""


def lose_expired(connection: sa.Connection, *, actor: str, since_s: float = 0.0) -> list[str]:
    """Declares lost what no worker has beaten for since its lease ran out, `since_s` ago or longer; the ids."""
    expired = sa.select(_JOBS.c.id).where(_IS_HELD, _JOBS.c.lease_expires_at < NOW - since_s).order_by(_JOBS.c.id)
    ids = list(connection.execute(expired.with_for_update(skip_locked=True)).scalars())
    return [
        job_id for job_id in ids if change_state(connection, job_id, JobState.LOST, cause="lease_expired", actor=actor)
    ]


def sweep(database: Database) -> list[str]:
    """What a reader does before it tells how jobs stand: jobs whose worker is gone are lost, also where no other worker
    is there to say so. A holder that was only cut off adopts its own again. Gives the ids of those jobs.

    Asks before it writes, so that it costs a short query; a database that takes no writes, or none just now, stays as
    it is.
    """
    since_s = _PATIENCE * database.settings.lease_s
    query = sa.select(_JOBS.c.id).where(_IS_HELD, _JOBS.c.lease_expires_at < NOW - since_s).limit(1)
    with database.reading() as connection:
        if connection.execute(query).first() is None:
            return []
    return database.try_to_write(lambda connection: lose_expired(connection, actor="reader", since_s=since_s)) or []
