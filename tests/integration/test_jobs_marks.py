"""People's marks in the job database, on both engines."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from mmrl.errors import DataError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.marks import Answer, Marks, item_key
from mmrl.jobs.records import User
from mmrl.jobs.users import Users

A, B, C = Answer("panel-step-0", 0), Answer("panel-step-9", 0), Answer("panel-step-9", 1)


@pytest.fixture
def mia(job_database: Database) -> User:
    return Users(job_database).add("Mia", role="member")


@pytest.fixture
def max_(job_database: Database) -> User:
    return Users(job_database).add("Max", role="member")


def test_a_mark_is_kept_as_it_was_set_and_a_second_one_of_the_item_takes_its_place(
    job_database: Database, mia: User, max_: User
) -> None:
    marks = Marks(job_database, mia)
    marks.add("panel", "p1", (A, B), ranks=(1, 2), shown=(1, 0), reason="misread", tags=("form", "a"), seconds=2.5)
    marks.add("panel", "p1", (A, C), ranks=(1, 1))
    Marks(job_database, max_).add("panel", "p1", (A, B), ranks=(1, 1), all_bad=True)
    marks.add("another", "p2", (A, B), ranks=(2, 1))
    first = marks.of_source("panel")[0]
    assert (first.shown, first.choice, first.reason, first.tags, first.seconds) == (
        (1, 0),
        "a",
        "misread",
        ("a", "form"),
        2.5,
    )
    marks.add("panel", "p1", (B, A), ranks=(1, 2), shown=(0, 1), seconds=1.0)
    found = marks.of_source("panel")
    assert [(mark.user_id, mark.answers, mark.choice, mark.shown, mark.reason) for mark in found] == [
        (mia.id, (A, C), "tie", (0, 1), None),
        (max_.id, (A, B), "both_bad", (0, 1), None),
        (mia.id, (A, B), "b", (1, 0), None),
    ], "the other way round it is the same item, and B stood left and was better"
    assert len(marks.all()) == 4


def test_a_mark_that_is_to_stay_is_not_changed_by_a_second_one_nor_begun_anew(
    job_database: Database, mia: User
) -> None:
    marks = Marks(job_database, mia)
    first = marks.add("panel", "p1", (A, B), ranks=(1, 2), reason="misread", keeps_earlier=True)
    assert marks.add("panel", "p1", (B, A), ranks=(1, 2), keeps_earlier=True) == first
    (mark,) = marks.of_source("panel")
    assert (mark.id, mark.choice, mark.reason) == (first, "a", "misread")
    marks.begin(mark.item, {"is_skipped": True})
    assert marks.begun() == {}
    marks.remove(first)
    marks.begin(mark.item, {"reason": "misread"})
    assert marks.begun() == {mark.item: {"reason": "misread"}}
    assert marks.add("panel", "p1", (A, B), ranks=(1, 2)) != first


def test_a_ranking_says_of_each_two_answers_which_is_better(job_database: Database, mia: User) -> None:
    Marks(job_database, mia).add("run:1", "p1", (C, A, B), ranks=(7, 3, 3), shown=(2, 0, 1))
    (mark,) = Marks(job_database, mia).of_source("run:1")
    assert (mark.answers, mark.ranks, mark.shown, mark.choice) == ((A, B, C), (1, 1, 2), (1, 2, 0), None)
    assert list(mark.choices()) == [(A, B, "tie"), (A, C, "a"), (B, C, "a")]


def test_two_windows_of_one_person_leave_one_mark(job_database: Database, mia: User) -> None:
    marks = Marks(job_database, mia)
    windows = [
        Thread(target=marks.add, args=("panel", "p1", (A, B)), kwargs={"ranks": ranks}) for ranks in ((1, 2), (2, 1))
    ]
    for window in windows:
        window.start()
    for window in windows:
        window.join()
    assert [mark.choice in ("a", "b") for mark in marks.of_source("panel")] == [True]


def test_what_was_begun_is_kept_for_its_person_until_it_is_a_mark(
    job_database: Database, mia: User, max_: User
) -> None:
    marks = Marks(job_database, mia)
    key = item_key("p1", (B, A))
    marks.begin(key, {"reason": "mis"})
    marks.begin("another", {"reason": ""})
    time.sleep(0.01)  # the databases' clock counts milliseconds
    marks.begin(key, {"reason": "misread"})
    assert marks.begun() == {key: {"reason": "misread"}, "another": {"reason": ""}}
    assert list(marks.begun()) == ["another", key], "the one that was changed last comes last"
    assert Marks(job_database, max_).begun() == {}
    marks.add("panel", "p1", (A, B), ranks=(1, 2))
    assert marks.begun() == {"another": {"reason": ""}}


def test_only_ones_own_mark_can_be_taken_back(job_database: Database, mia: User, max_: User) -> None:
    mark = Marks(job_database, mia).add("panel", "p1", (A, B), ranks=(1, 2))
    with pytest.raises(ForbiddenError, match="somebody else has set"):
        Marks(job_database, max_).remove(mark)
    Marks(job_database, mia).remove(mark)
    Marks(job_database, mia).remove(mark)
    assert Marks(job_database, mia).of_source("panel") == []


def test_a_viewer_may_not_label(job_database: Database) -> None:
    viewer = Users(job_database).add("Vic", role="viewer")
    for act in (
        lambda: Marks(job_database, viewer).add("panel", "p1", (A, B), ranks=(1, 2)),
        lambda: Marks(job_database, viewer).begin("item", {}),
        lambda: Marks(job_database, viewer).remove("any"),
    ):
        with pytest.raises(ForbiddenError, match="Vic may not label samples"):
            act()


def test_a_mark_that_ranks_not_each_answer_once_is_refused(job_database: Database, mia: User) -> None:
    marks = Marks(job_database, mia)
    with pytest.raises(DataError, match="two or more different answers"):
        marks.add("panel", "p1", (A, A), ranks=(1, 2))
    with pytest.raises(DataError, match="ranks must be one for each of 2 answers"):
        marks.add("panel", "p1", (A, B), ranks=(1,))
    with pytest.raises(DataError, match="shown must name each of 2 answers once"):
        marks.add("panel", "p1", (A, B), ranks=(1, 2), shown=(0, 0))


def test_who_was_told_what_others_chose_of_an_item_neither_takes_back_nor_changes_their_mark_of_it(
    job_database: Database, mia: User, max_: User
) -> None:
    marks = Marks(job_database, mia)
    told = marks.add("panel", "p1", (A, B), ranks=(1, 2))
    other = marks.add("panel", "p2", (A, B), ranks=(1, 2))
    Marks(job_database, max_).add("panel", "p1", (A, B), ranks=(2, 1))
    item = item_key("p1", (A, B))
    marks.tell(iter([item]))
    assert marks.told([item, item_key("p2", (A, B))]) == {item}
    assert Marks(job_database, max_).told([item]) == set()
    assert marks.begun() == {}
    with pytest.raises(ForbiddenError, match="was shown what others chose"):
        marks.remove(told)
    with pytest.raises(ForbiddenError, match="was shown what others chose"):
        marks.add("panel", "p1", (B, A), ranks=(1, 2))
    assert marks.add("panel", "p1", (B, A), ranks=(1, 2), keeps_earlier=True) == told
    marks.remove(other)
    assert [mark.choice for mark in marks.of_source("panel") if mark.user_id == mia.id] == ["a"]
    assert [mark.id for mark in marks.by_id(marks.ids_of_source("panel"))] == marks.ids_of_source("panel")


def test_what_a_person_was_told_already_is_not_written_again(
    job_database: Database, mia: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Marks(job_database, mia)
    marks.tell(["one", "other"])

    def refused() -> None:
        raise AssertionError("it was to write")

    monkeypatch.setattr(job_database, "transaction", refused)
    for again in (["one"], ["other", "one"], []):
        marks.tell(again)
    with pytest.raises(AssertionError):
        marks.tell(["one", "new"])
