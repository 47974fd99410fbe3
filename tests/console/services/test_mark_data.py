"""Marks as a data set that preference training takes, and as rows to take along."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from homes import Home
from label_builders import item, mark_of, pair, panel_items

from console.services.label_drawing import Drawing
from console.services.mark_data import as_preferences, mark_rows, register_marks
from mmrl.data.dataset import load_dataset
from mmrl.data.registry import register
from mmrl.errors import DataError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.users import Users
from mmrl.types import Message, Sample, TextPart

Homes = Callable[[str], Home]


def _texts(row: object) -> tuple[str, str]:
    meta = row.meta  # type: ignore[attr-defined]
    return meta["chosen"][0]["content"][0]["text"], meta["rejected"][0]["content"][0]["text"]


def test_most_peoples_choice_becomes_chosen_and_rejected() -> None:
    decided, tied, divided = pair("p"), pair("q"), pair("r")
    marks = [
        *(mark_of(decided, choice, user) for choice, user in (("b", "mia"), ("b", "max"), ("a", "ben"))),  # type: ignore[arg-type]
        mark_of(tied, "tie"),
        mark_of(divided, "a"),
        mark_of(divided, "b", "max"),
    ]
    (row,) = as_preferences([decided, tied, divided], marks)
    assert _texts(row) == ("other of p", "one of p")
    assert (row.meta["votes"], row.meta["num_people"]) == (2, 3)
    assert row.messages == decided.prompt.messages


def test_a_ranking_becomes_a_row_for_each_two_that_it_tells_apart() -> None:
    group = item("p", "a", "b", "c")
    rows = as_preferences([group], [mark_of(group, (2, 1, 1))])
    assert sorted(map(_texts, rows)) == [("b", "a"), ("c", "a")]


def test_a_data_set_of_marks_holds_back_whole_prompts(fresh_home: Homes) -> None:
    fresh_home("empty")
    items = panel_items(60).items(Drawing(num=None))
    marks = [mark_of(each, "a") for each in items]
    with Database.open() as database:
        user = Users(database).local()
        info = register_marks("marks", items, marks, source="people", database=database, user=user)
        assert sum(split.num_rows for split in info.splits.values()) == 90
        prompts = {
            split: {str(sample.messages) for sample in load_dataset(f"marks@{split}")} for split in ("train", "test")
        }
        assert not prompts["train"] & prompts["test"]
        assert len(prompts["test"]) == 6
        few = register_marks("few", items[:10], marks, source="people", database=database, user=user)
        assert list(few.splits) == ["train"], "nothing is held back of what would tell nothing"
        again = register_marks("marks", items[:10], marks, source="people", database=database, user=user)
        assert list(again.splits) == ["train"], "what was held back of another draw may be trained on now"
        ties = [mark_of(items[0], "tie")]
        with pytest.raises(DataError, match="no pair has an answer that most people prefer"):
            register_marks("none", items, ties, source="people", database=database, user=user)
        viewer = Users(database).add("Vic", role="viewer")
        with pytest.raises(ForbiddenError, match="Vic may not add data sets"):
            register_marks("none", items, marks, source="people", database=database, user=viewer)


def test_a_data_set_made_from_something_else_is_not_replaced(fresh_home: Homes) -> None:
    fresh_home("empty")
    register("digits", {"train": [Sample("s", (Message("user", (TextPart("Which digit?"),)),), "3")]}, source="a file")
    judged = pair("p")
    with Database.open() as database:
        user = Users(database).local()
        for source in ("marks of people on one", "marks of people on another"):
            with pytest.raises(DataError, match=r"there is a data set 'digits' made from a file"):
                register_marks("digits", [judged], [mark_of(judged, "a")], source=source, database=database, user=user)
        make = partial(register_marks, "mine", [judged], database=database, user=user)
        first = make([mark_of(judged, "a")], source="marks of people on one")
        assert make([mark_of(judged, "b")], source="marks of people on one").version != first.version
        with pytest.raises(DataError, match="choose another name"):
            make([mark_of(judged, "a")], source="marks of people on another")
    assert [row.answer for row in load_dataset("digits@train")] == ["3"]


def test_rows_tell_who_chose_what_of_what_was_shown_where_and_why() -> None:
    of = pair("p")
    marks = [
        mark_of(of, "b", "u2", id="2"),
        mark_of(of, "a", "u1", id="1", shown=(1, 0), reason="misread", tags=("form",)),
        mark_of(of, "both_bad", "u1", id="3"),
    ]
    first, second, third = mark_rows([of], marks, {"u1": "Mia", "u2": "Max"}, pseudonyms=False)
    assert [first["person"], second["person"]] == ["Mia", "Max"]
    assert (first["choice"], first["answers"]) == ("right", ["other of p", "one of p"]), "as they stood"
    assert (first["ranks"], first["made_by"], first["reason"], first["tags"]) == (
        [2, 1],
        ["run@1", "run@0"],
        "misread",
        ["form"],
    )
    assert first["sources"] == ["step-1#0", "step-0#0"]
    assert [second["choice"], third["choice"]] == ["right", "both bad"]
    (named,) = mark_rows([of], [mark_of(of, "b", shown=())], {}, pseudonyms=True)
    assert (named["choice"], named["answers"]) == ("second", ["one of p", "other of p"]), "of a chat, on no drawn sides"
    told = mark_rows([of], marks, {"u1": "Mia", "u2": "Max"}, pseudonyms=True)
    assert [row["person"] for row in told] == ["person 1", "person 2", "person 1"]


def test_rows_of_answers_that_are_gone_say_what_is_left() -> None:
    group = item("p", "a", "b", "c")
    (row,) = mark_rows([], [mark_of(group, (2, 1, 1))], {}, pseudonyms=True)
    assert (row["choice"], row["answers"], row["prompt"]) == ("2 and 3 best", [None, None, None], None)
