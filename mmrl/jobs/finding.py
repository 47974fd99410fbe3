"""From what a user typed to a job's id."""

from __future__ import annotations

import re
from difflib import get_close_matches

import sqlalchemy as sa

from mmrl.errors import NotFoundError
from mmrl.jobs import tables

_PART = re.compile(r"[0-9a-f-]{4,36}")


def find_job(connection: sa.Connection, ref: str) -> str:
    """The id of the job that is meant: that id; else the newest job of that name; else the one job whose id begins or
    ends so. Raises NotFoundError."""
    table = tables.jobs
    exact = connection.execute(sa.select(table.c.id).where(table.c.id == ref)).scalar_one_or_none()
    if exact is not None:
        return str(exact)
    named = sa.select(table.c.id).where(table.c.name == ref).order_by(table.c.id.desc()).limit(1)
    newest = connection.execute(named).scalar_one_or_none()
    if newest is not None:
        return str(newest)
    found: list[str] = []
    if _PART.fullmatch(ref):
        part = sa.or_(table.c.id.startswith(ref), table.c.id.endswith(ref))
        found = list(connection.execute(sa.select(table.c.id).where(part).order_by(table.c.id).limit(6)).scalars())
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFoundError(f"several jobs have ids like {ref!r}: {', '.join(found)}; give more of one")
    recent = sa.select(table.c.name).order_by(table.c.id.desc()).limit(1000)
    near = get_close_matches(ref, list(dict.fromkeys(connection.execute(recent).scalars())), n=3)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise NotFoundError(f"no job {ref!r}, neither by id nor by name{hint}; `mmrl job list` shows all")
