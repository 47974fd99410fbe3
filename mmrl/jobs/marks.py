"""What people think of two answers to one prompt: the table `preferences`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa

from mmrl.jobs import tables_catalogue as tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.ids import new_id
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed

Choice = Literal["a", "b", "tie", "both_bad"]
Side = Literal["a", "b"]


@dataclass(frozen=True)
class Answer:
    """One answer that was judged: of which evaluation, which response to the prompt."""

    evaluation: str
    sample_idx: int


@dataclass(frozen=True)
class Mark:
    """panel: the hash of the panel. left: which answer stood on the left. seconds: from the pair's appearance to the
    choice; None where that was not measured."""

    id: str
    panel: str
    prompt_id: str
    a: Answer
    b: Answer
    left: Side
    choice: Choice
    reason: str | None
    seconds: float | None
    user_id: str
    created_at: datetime

    @property
    def pair(self) -> tuple[str, Answer, Answer]:
        """What was judged, whoever did."""
        return self.prompt_id, self.a, self.b


class Marks:
    """In a person's name. Raises ForbiddenError for whoever may not label."""

    def __init__(self, database: Database, actor: User) -> None:
        self._database = database
        self._actor = actor

    def add(
        self,
        panel: str,
        prompt_id: str,
        a: Answer,
        b: Answer,
        *,
        left: Side,
        choice: Choice,
        reason: str | None = None,
        seconds: float | None = None,
    ) -> str:
        """The person's mark of this pair, in the place of an earlier one of theirs. Gives its id."""
        check_allowed(self._actor, "label", settings=self._database.settings)
        table = tables.preferences
        samples = {"a_sample": _to_json(a), "b_sample": _to_json(b)}
        with self._database.transaction() as connection:
            now = self._database.now(connection)
            for earlier in connection.execute(self._mine(panel, prompt_id)):
                if (earlier.a_sample, earlier.b_sample) == (samples["a_sample"], samples["b_sample"]):
                    connection.execute(table.delete().where(table.c.id == earlier.id))
            row = {
                "id": new_id(now),
                "panel_id": panel,
                "prompt_id": prompt_id,
                **samples,
                "left_is": left,
                "choice": choice,
                "reason": reason or None,
                "seconds": seconds,
                "user_id": self._actor.id,
            }
            connection.execute(table.insert().values(row | {"created_at": NOW}))
        return str(row["id"])

    def remove(self, mark_id: str) -> None:
        """Takes back a mark of one's own; one that is gone already is no error."""
        table = tables.preferences
        with self._database.transaction() as connection:
            owner = connection.execute(sa.select(table.c.user_id).where(table.c.id == mark_id)).scalar()
            if owner is not None and owner != self._actor.id:
                raise ForbiddenError(f"{self._actor.name} may not take back a mark that somebody else has set")
            connection.execute(table.delete().where(table.c.id == mark_id))

    def of_panel(self, panel: str) -> list[Mark]:
        """Everybody's, the oldest first."""
        table = tables.preferences
        query = sa.select(table).where(table.c.panel_id == panel).order_by(table.c.id)
        with self._database.reading() as connection:
            return [_mark(row) for row in connection.execute(query)]

    def _mine(self, panel: str, prompt_id: str) -> sa.Select[Any]:
        table = tables.preferences
        return sa.select(table.c.id, table.c.a_sample, table.c.b_sample).where(
            table.c.panel_id == panel, table.c.prompt_id == prompt_id, table.c.user_id == self._actor.id
        )


def _to_json(answer: Answer) -> dict[str, Any]:
    return {"evaluation": answer.evaluation, "sample_idx": answer.sample_idx}


def _answer(value: Mapping[str, Any]) -> Answer:
    return Answer(str(value["evaluation"]), int(value["sample_idx"]))


def _mark(row: Any) -> Mark:
    return Mark(
        id=row.id,
        panel=row.panel_id,
        prompt_id=row.prompt_id,
        a=_answer(row.a_sample),
        b=_answer(row.b_sample),
        left=row.left_is,
        choice=row.choice,
        reason=row.reason,
        seconds=row.seconds,
        user_id=row.user_id,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
    )
