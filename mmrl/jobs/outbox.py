"""Messages about changes of state, written in the transaction of the change itself, so that none is lost or invented.

Whoever delivers them (a webhook, a notifier) takes what is pending, sends it, and says so; a message may come twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.records import JobEvent
from mmrl.jobs.rows import to_event
from mmrl.jobs.transitions import STATE_CHANNEL


@dataclass(frozen=True)
class Message:
    """tries: how often sending it has failed."""

    event: JobEvent
    tries: int


class Outbox:
    def __init__(self, database: Database, channel: str = STATE_CHANNEL) -> None:
        self.database = database
        self.channel = channel

    def pending(self, limit: int = 100) -> list[Message]:
        """What is not sent yet, oldest first."""
        table, events = tables.outbox, tables.job_events
        query = (
            sa.select(events, table.c.tries)
            .join_from(table, events, events.c.id == table.c.event_id)
            .where(table.c.channel == self.channel, table.c.sent_at.is_(None))
            .order_by(table.c.event_id)
            .limit(limit)
        )
        with self.database.reading() as connection:
            return [Message(to_event(row), row.tries) for row in connection.execute(query)]

    def mark_sent(self, event_ids: Sequence[int]) -> None:
        self._update(event_ids, sent_at=NOW)

    def mark_failed(self, event_ids: Sequence[int]) -> None:
        """Counts a try that failed; the messages stay pending."""
        self._update(event_ids, tries=tables.outbox.c.tries + 1)

    def forget_before(self, seconds: float) -> int:
        """Deletes messages older than so many seconds, sent or not, and gives their number."""
        table, events = tables.outbox, tables.job_events
        old = sa.select(events.c.id).where(events.c.at < NOW - seconds)
        with self.database.transaction() as connection:
            gone = table.delete().where(table.c.channel == self.channel, table.c.event_id.in_(old))
            return int(connection.execute(gone).rowcount)

    def _update(self, event_ids: Sequence[int], **values: Any) -> None:
        table = tables.outbox
        with self.database.transaction() as connection:
            mine = table.update().where(table.c.channel == self.channel, table.c.event_id.in_(event_ids))
            connection.execute(mine.values(values))
