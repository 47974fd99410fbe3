"""A home's database in the name of one of its users, for tests of services."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from homes import Home

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Job, User
from mmrl.jobs.users import Users


@dataclass(frozen=True)
class Desk:
    """jobs: in the viewer's name. home: whose database it is."""

    home: Home
    database: Database
    viewer: User
    jobs: Jobs

    def job(self, name: str) -> Job:
        return self.jobs.get(self.home.jobs[name])

    def as_user(self, role: str) -> Desk:
        user = Users(self.database).get(self.home.users[role])
        return Desk(self.home, self.database, user, Jobs(self.database, actor=user))

    @property
    def worker(self) -> Leases:
        """A further worker."""
        from job_rows import join

        return join(self.database, pid=2)


@contextmanager
def desk_in(home: Home) -> Iterator[Desk]:
    with home.active(), Database.open() as database:
        viewer = Users(database).local()
        yield Desk(home, database, viewer, Jobs(database, actor=viewer))
