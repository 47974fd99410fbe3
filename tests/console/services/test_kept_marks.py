"""Marks that are kept between looks: what was changed since is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from homes import Home

from console.services.kept_marks import marks_of_source
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Answer, Mark, Marks
from mmrl.jobs.users import Users

A, B = Answer("step-0", 0), Answer("step-9", 0)


def test_marks_that_were_set_anew_or_taken_back_since_are_seen_and_others_are_not_read_again(
    fresh_home: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_home("empty")
    read: list[str] = []
    by_id = Marks.by_id
    monkeypatch.setattr(Marks, "by_id", lambda self, ids: (read.extend(ids), by_id(self, ids))[1])
    with Database.open() as database:
        marks = Marks(database, Users(database).local())

        def look() -> list[Mark]:
            read.clear()
            found = marks_of_source(marks, "panel")
            assert found == marks.of_source("panel")
            return found

        kept, changed, gone = (marks.add("panel", f"p{n}", (A, B), ranks=(1, 2)) for n in range(3))
        look()
        assert sorted(read) == sorted([kept, changed, gone])
        marks.remove(gone)
        anew = marks.add("panel", "p1", (A, B), ranks=(2, 1))
        assert [mark.choice for mark in look()] == ["a", "b"]
        assert read == [anew]
