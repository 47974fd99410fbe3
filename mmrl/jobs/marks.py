"""What people think of answers to one prompt, two or more: the tables `marks` and `mark_drafts`.

A mark ranks the answers, 1 being the best; equal ranks are as good. Of two answers that is A/B with ties. An item is a
prompt with certain answers, whatever their order: a person has one mark of it, however many windows they have open.

Who was shown what others chose of an item keeps their own mark of it as it is: it is neither taken back nor set anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.data.serialise import canonical
from mmrl.errors import DataError
from mmrl.jobs import tables_catalogue as tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.ids import new_id
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed

Choice = Literal["a", "b", "tie", "both_bad"]
"""Of two answers: the first, the second, as good, neither."""

_IDS_AT_ONCE = 500
"""In one query; databases take so many parameters at most."""
_TOLD = "told "
"""Begins the key of a draft that says: this person knows what others chose of the item whose key follows."""


@dataclass(frozen=True, order=True)
class Answer:
    """One answer that is judged. source: the id of an evaluation, `JOB/SPLIT/STEP/GROUP` of a run's samples, or the id
    of a kept exchange. sample_idx: which response to the prompt."""

    source: str
    sample_idx: int


@dataclass(frozen=True)
class Mark:
    """source: what the items were drawn from, such as the hash of a panel or `run:JOB`. answers: in their own order.

    shown: places in `answers`, as they stood from left to right; empty where no sides were drawn, as in a chat, where
    whoever judges sees whose answers they are. ranks: of each answer, from 1 without gaps. all_bad:
    none of them will do; all ranks are 1 then. seconds: from the item's appearance to the choice; None where that was
    not measured.
    """

    id: str
    source: str
    item: str
    prompt_id: str
    answers: tuple[Answer, ...]
    shown: tuple[int, ...]
    ranks: tuple[int, ...]
    all_bad: bool
    reason: str | None
    tags: tuple[str, ...]
    seconds: float | None
    user_id: str
    created_at: datetime

    def choice_of(self, first: int, second: int) -> Choice:
        """Between two of the answers, by their places."""
        if self.all_bad:
            return "both_bad"
        if self.ranks[first] == self.ranks[second]:
            return "tie"
        return "a" if self.ranks[first] < self.ranks[second] else "b"

    @property
    def choice(self) -> Choice | None:
        """Of a pair; None where more than two were ranked."""
        return self.choice_of(0, 1) if len(self.answers) == 2 else None

    def choices(self) -> Iterator[tuple[Answer, Answer, Choice]]:
        """Of each two of its answers, the one that comes first in their order being `a`."""
        for first, second in combinations(range(len(self.answers)), 2):
            yield self.answers[first], self.answers[second], self.choice_of(first, second)


def item_key(prompt_id: str, answers: Sequence[Answer]) -> str:
    """The same for the same prompt and answers in any order."""
    return hashlib.sha256(canonical([prompt_id, [_to_json(answer) for answer in sorted(answers)]]).encode()).hexdigest()


class Marks:
    """In a person's name. Raises ForbiddenError for whoever may not label."""

    def __init__(self, database: Database, actor: User) -> None:
        self._database = database
        self._actor = actor

    def add(
        self,
        source: str,
        prompt_id: str,
        answers: Sequence[Answer],
        *,
        ranks: Sequence[int],
        shown: Sequence[int] | None = None,
        all_bad: bool = False,
        reason: str | None = None,
        tags: Sequence[str] = (),
        seconds: float | None = None,
        keeps_earlier: bool = False,
    ) -> str:
        """The person's mark of these answers, in the place of an earlier one of theirs; what they had begun of it is
        dropped. Gives its id. shown: as they stand in `answers` unless it is told; empty where no sides were drawn.
        keeps_earlier: an earlier one stays as it is, and its id is given; for screens whose keys may be pressed again
        before they show the next item.

        Raises DataError for fewer than two answers, one that is there twice, and ranks or places that are none of them;
        ForbiddenError where an earlier one may not be replaced any more, see `tell`.
        """
        self._check()
        shown = tuple(range(len(answers))) if shown is None else tuple(shown)
        _check_mark(answers, ranks, shown, all_bad)
        order = sorted(range(len(answers)), key=lambda place: answers[place])
        dense = {rank: place for place, rank in enumerate(sorted(set(ranks)), start=1)}
        values = {
            "source": source,
            "prompt_id": prompt_id,
            "answers": [_to_json(answers[place]) for place in order],
            "shown": [order.index(place) for place in shown],
            "ranks": [1 if all_bad else dense[ranks[place]] for place in order],
            "all_bad": all_bad,
            "reason": reason or None,
            "tags": sorted(set(tags)),
            "seconds": seconds,
        }
        item = item_key(prompt_id, answers)
        with self._database.transaction() as connection:
            values["id"] = new_id(self._database.now(connection))
            key = {"user_id": self._actor.id, "item": item}
            if not keeps_earlier and connection.execute(_of(sa.select(tables.marks.c.id), tables.marks, key)).first():
                self._check_may_change(connection, item)
            self._put(connection, tables.marks, key, values | {"created_at": NOW}, keeps_earlier=keeps_earlier)
            connection.execute(_of(tables.mark_drafts.delete(), tables.mark_drafts, key))
            return str(connection.execute(_of(sa.select(tables.marks.c.id), tables.marks, key)).scalar_one())

    def remove(self, mark_id: str) -> None:
        """Takes back a mark of one's own; one that is gone already is no error. Raises ForbiddenError for somebody
        else's, and for one of an item of which the person was told what others chose."""
        self._check()
        table = tables.marks
        with self._database.transaction() as connection:
            found = connection.execute(sa.select(table.c.user_id, table.c.item).where(table.c.id == mark_id)).first()
            if found is None:
                return
            if found.user_id != self._actor.id:
                raise ForbiddenError(f"{self._actor.name} may not take back a mark that somebody else has set")
            self._check_may_change(connection, found.item)
            connection.execute(table.delete().where(table.c.id == mark_id))

    def tell(self, items: Iterable[str]) -> None:
        """Notes that the person is shown what others chose of these items, before they are. Again changes nothing, and
        writes nothing."""
        items = set(items)
        left = items - self.told(items)
        if not left:
            return
        with self._database.transaction() as connection:
            for item in sorted(left):
                key = {"user_id": self._actor.id, "item": f"{_TOLD}{item}"}
                values = {"payload": {}, "updated_at": NOW}
                self._put(connection, tables.mark_drafts, key, values, keeps_earlier=True)

    def told(self, items: Iterable[str]) -> set[str]:
        """Those of the items of which the person was told what others chose."""
        table = tables.mark_drafts
        query = sa.select(table.c.item).where(table.c.user_id == self._actor.id, table.c.item.startswith(_TOLD))
        with self._database.reading() as connection:
            found = {item.removeprefix(_TOLD) for item in connection.execute(query).scalars()}
        return found & set(items)

    def of_source(self, source: str) -> list[Mark]:
        """Everybody's, the oldest first."""
        return self._read(tables.marks.c.source == source)

    def ids_of_source(self, source: str) -> list[str]:
        """Of the marks of `of_source`, in its order. A mark never changes: one set anew has another id."""
        table = tables.marks
        query = sa.select(table.c.id).where(table.c.source == source).order_by(table.c.id)
        with self._database.reading() as connection:
            return list(connection.execute(query).scalars())

    def by_id(self, ids: Sequence[str]) -> list[Mark]:
        """Those that are still there, the oldest first."""
        parts = (ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE))
        return [mark for part in parts for mark in self._read(tables.marks.c.id.in_(part))]

    def all(self) -> list[Mark]:
        """Everybody's of every source, the oldest first."""
        return self._read(sa.true())

    def begin(self, item: str, payload: Mapping[str, Any]) -> None:
        """Keeps what the person has done of an item that they have not judged yet, such as a reason half written; of
        one that they have judged nothing is begun."""
        self._check()
        with self._database.transaction() as connection:
            key = {"user_id": self._actor.id, "item": item}
            if connection.execute(_of(sa.select(tables.marks.c.id), tables.marks, key)).first() is not None:
                return
            self._put(connection, tables.mark_drafts, key, {"payload": dict(payload), "updated_at": NOW})

    def begun(self) -> dict[str, dict[str, Any]]:
        """What the person has begun, by item, the oldest first."""
        table = tables.mark_drafts
        is_own = sa.and_(table.c.user_id == self._actor.id, sa.not_(table.c.item.startswith(_TOLD)))
        query = sa.select(table).where(is_own).order_by(table.c.updated_at)
        with self._database.reading() as connection:
            return {row.item: dict(row.payload) for row in connection.execute(query)}

    def _read(self, condition: sa.ColumnElement[bool]) -> list[Mark]:
        query = sa.select(tables.marks).where(condition).order_by(tables.marks.c.id)
        with self._database.reading() as connection:
            return [_mark(row) for row in connection.execute(query)]

    def _check(self) -> None:
        check_allowed(self._actor, "label", settings=self._database.settings)

    def _check_may_change(self, connection: sa.Connection, item: str) -> None:
        key = {"user_id": self._actor.id, "item": f"{_TOLD}{item}"}
        if connection.execute(_of(sa.select(tables.mark_drafts.c.item), tables.mark_drafts, key)).first() is not None:
            raise ForbiddenError(
                f"{self._actor.name} was shown what others chose of these answers, so their mark of them stays as it is"
            )

    def _put(
        self,
        connection: sa.Connection,
        table: sa.Table,
        key: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        keeps_earlier: bool = False,
    ) -> None:
        dialect = postgresql if self._database.dialect == "postgresql" else sqlite
        insert = dialect.insert(table).values({**key, **values})
        index = list(key)
        if keeps_earlier:
            connection.execute(insert.on_conflict_do_nothing(index_elements=index))
        else:
            connection.execute(insert.on_conflict_do_update(index_elements=index, set_=dict(values)))


def _check_mark(answers: Sequence[Answer], ranks: Sequence[int], shown: Sequence[int], all_bad: bool) -> None:
    if len(answers) < 2 or len(set(answers)) < len(answers):
        raise DataError(f"a mark needs two or more different answers (got {', '.join(map(str, answers)) or 'none'})")
    if shown and sorted(shown) != list(range(len(answers))):
        raise DataError(f"shown must name each of {len(answers)} answers once, by place (got {list(shown)})")
    if not all_bad and (len(ranks) != len(answers) or min(ranks) < 1):
        raise DataError(f"ranks must be one for each of {len(answers)} answers, 1 being the best (got {list(ranks)})")


def _of(statement: Any, table: sa.Table, key: Mapping[str, str]) -> Any:
    for name, value in key.items():
        statement = statement.where(table.c[name] == value)
    return statement


def _to_json(answer: Answer) -> dict[str, Any]:
    return {"source": answer.source, "sample_idx": answer.sample_idx}


def _mark(row: Any) -> Mark:
    return Mark(
        id=row.id,
        source=row.source,
        item=row.item,
        prompt_id=row.prompt_id,
        answers=tuple(Answer(str(each["source"]), int(each["sample_idx"])) for each in row.answers),
        shown=tuple(row.shown),
        ranks=tuple(row.ranks),
        all_bad=row.all_bad,
        reason=row.reason,
        tags=tuple(row.tags),
        seconds=row.seconds,
        user_id=row.user_id,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
    )
