"""People's marks in the job database, on both engines."""

from __future__ import annotations

import pytest

from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.marks import Answer, Marks
from mmrl.jobs.users import Users

A, B, C = Answer("panel-step-0", 0), Answer("panel-step-9", 0), Answer("panel-step-9", 1)


def test_a_mark_is_kept_as_it_was_set_and_a_second_one_of_the_pair_takes_its_place(job_database: Database) -> None:
    users = Users(job_database)
    mia, max_ = (users.add(name, role="member") for name in ("Mia", "Max"))
    marks = Marks(job_database, mia)
    marks.add("panel", "p1", A, B, left="b", choice="a", reason="misread", seconds=2.5)
    marks.add("panel", "p1", A, C, left="a", choice="tie")
    Marks(job_database, max_).add("panel", "p1", A, B, left="a", choice="both_bad")
    marks.add("another", "p1", A, B, left="a", choice="b")
    marks.add("panel", "p1", A, B, left="b", choice="b", seconds=1.0)
    found = marks.of_panel("panel")
    assert [(mark.user_id, mark.b, mark.left, mark.choice, mark.reason, mark.seconds) for mark in found] == [
        (mia.id, C, "a", "tie", None, None),
        (max_.id, B, "a", "both_bad", None, None),
        (mia.id, B, "b", "b", None, 1.0),
    ]
    assert found[0].pair == ("p1", A, C)


def test_only_ones_own_mark_can_be_taken_back(job_database: Database) -> None:
    users = Users(job_database)
    mia, max_ = (users.add(name, role="member") for name in ("Mia", "Max"))
    mark = Marks(job_database, mia).add("panel", "p1", A, B, left="a", choice="a")
    with pytest.raises(ForbiddenError, match="somebody else has set"):
        Marks(job_database, max_).remove(mark)
    Marks(job_database, mia).remove(mark)
    Marks(job_database, mia).remove(mark)
    assert Marks(job_database, mia).of_panel("panel") == []


def test_a_viewer_may_not_label(job_database: Database) -> None:
    viewer = Users(job_database).add("Vic", role="viewer")
    with pytest.raises(ForbiddenError, match="Vic may not label samples"):
        Marks(job_database, viewer).add("panel", "p1", A, B, left="a", choice="a")
