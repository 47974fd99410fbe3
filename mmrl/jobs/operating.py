"""What admins do with workers and pools, from the console and from commands; who asks is checked here."""

from __future__ import annotations

from mmrl.errors import ConfigError
from mmrl.jobs.field_checks import check_pool
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed


def drain(fleet: Fleet, user: User, worker_id: str) -> None:
    """The worker takes nothing new and ends when its runs have. Raises ForbiddenError, NotFoundError."""
    check_allowed(user, "admin", settings=fleet.database.settings)
    fleet.drain(worker_id)


def set_capacity(fleet: Fleet, user: User, pool: str, capacity: int | None) -> None:
    """The most jobs at once in a pool; None is as many as its workers hold. Raises ForbiddenError, ConfigError for a
    name or a number that cannot be."""
    check_allowed(user, "admin", settings=fleet.database.settings)
    check_pool(pool)
    if capacity is not None and capacity < 0:
        raise ConfigError(f"capacity of pool {pool}: got {capacity}; use 0 or more, or nothing for no limit")
    fleet.set_capacity(pool, capacity)
