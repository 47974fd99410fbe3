"""Which items people judge, in which order and how they stand, and what they have begun."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from label_builders import mark_of, pair, panel_items

from console.services.label_drawing import Drawing, Item
from console.services.label_items import ItemSource
from console.services.labelling import TAGS, Begun, known_tags, last_of, next_item, progress, ranks_of
from mmrl.jobs.marks import Mark

NUM = 20


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ItemSource:
    """Twenty prompts, two answers of each of two checkpoints; of even numbers the second answers are alike."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return panel_items(NUM)


@pytest.fixture
def items(source: ItemSource) -> list[Item]:
    return source.items(Drawing(num=None))


def test_answers_that_read_the_same_are_no_pair(items: list[Item]) -> None:
    assert len(items) == NUM + NUM // 2
    assert all(len({each.text for each in item.candidates}) == 2 for item in items)
    assert {each.by.rpartition("@")[2] for item in items for each in item.candidates} == {"0", "9"}


def test_the_same_address_draws_the_same_items_for_everybody(source: ItemSource) -> None:
    few = [item.key for item in source.items(Drawing(num=5))]
    assert few == [item.key for item in panel_items(NUM).items(Drawing(num=5))]
    assert few == [item.key for item in source.items(Drawing(num=10))][:5]
    assert len({item.prompt.id for item in source.items(Drawing(num=10))}) > 5, "not the first prompts alone"


def test_only_pairs_that_rewards_tell_apart(source: ItemSource) -> None:
    found = source.items(Drawing(num=None, only_differing=True))
    assert len(found) == NUM // 2
    assert all({each.reward for each in item.candidates} == {0.0, 1.0} for item in found)


def test_why_some_are_left_out_is_told_unless_as_many_as_were_asked_for_are_there(source: ItemSource) -> None:
    """Forty pairs: ten of answers alike, twenty more of the same reward."""
    told = "Of 40 there are 10 to judge; left out are 10 whose answers read the same or were not kept and 20 whose "
    assert source.draw(Drawing(num=20, only_differing=True)).left_out == f"{told}rewards do not differ."
    assert source.draw(Drawing(num=10, only_differing=True)).left_out == ""
    assert source.draw(Drawing(num=None)).left_out.startswith("Of 40 there are 30 to judge; left out are 10 whose")
    assert source.draw(Drawing(way="ranking", num=None)).left_out == ""


def test_a_ranking_has_each_answer_that_reads_differently_once(source: ItemSource) -> None:
    found = source.items(Drawing(way="ranking", num=None))
    assert Counter(len(item.candidates) for item in found) == {3: NUM // 2, 4: NUM // 2}
    assert all(len({each.text for each in item.candidates}) == len(item.candidates) for item in found)


def test_sides_are_random_by_item_and_person_and_stay_over_reloads(items: list[Item]) -> None:
    sides = [item.shown_for(user) for user in ("mia", "max") for item in items]
    assert sides == [item.shown_for(user) for user in ("mia", "max") for item in items]
    assert 15 < Counter(sides)[0, 1] < 45
    assert sides[: len(items)] != sides[len(items) :]


def test_each_item_comes_once_in_an_order_of_ones_own_and_skipped_ones_last(items: list[Item]) -> None:
    skipped = [items[3].key, items[1].key]
    orders = {}
    for user in ("mia", "max"):
        marks: list[Mark] = []
        seen = []
        while (item := next_item(items, marks, user, skipped)) is not None:
            seen.append(item.key)
            marks.append(mark_of(item, "tie", user))
        assert sorted(seen) == sorted(item.key for item in items)
        assert seen[-2:] == skipped, "the one that was skipped longest ago first"
        orders[user] = seen
    assert orders["mia"] != orders["max"]


def test_places_are_taken_from_the_best_on_with_ties_and_taken_back_one_by_one() -> None:
    begun = Begun()
    for answer, beside in ((2, True), (0, False), (1, True)):
        begun = Begun(placed=begun.place(answer, beside_last=beside))
    assert begun.placed == ((2,), (0, 1)), "nothing stands before the first that it could be as good as"
    assert ranks_of(begun.placed, 3) == [2, 2, 1]
    assert begun.without_last() == ((2,), (0,))
    assert Begun(placed=((2,),)).without_last() == ()
    assert Begun.of(begun.payload()) == begun
    with pytest.raises(ValueError, match="each of 3 answers has to be placed once"):
        ranks_of(((2,), (0,)), 3)


def test_progress_names_the_busiest_first_and_the_last_mark_is_that_of_its_person() -> None:
    one, other = pair("p1"), pair("p2")
    marks = [
        mark_of(one, "a", "max", id="1", at=datetime(2026, 1, 1, tzinfo=UTC)),
        mark_of(one, "b", "mia", id="2", at=datetime(2026, 1, 2, tzinfo=UTC)),
        mark_of(other, "b", "mia", id="3", at=datetime(2026, 1, 3, tzinfo=UTC)),
    ]
    assert [(each.user_id, each.num_judged, each.last_at.day) for each in progress(marks) if each.last_at] == [
        ("mia", 2, 3),
        ("max", 1, 1),
    ]
    assert last_of(marks, "max") == marks[0]
    assert last_of(marks, "ben") is None


def test_tags_that_a_person_added_are_offered_to_them_alone() -> None:
    marks = [
        mark_of(pair("p1"), "a", tags=("blurred", TAGS[0])),
        mark_of(pair("p2"), "a", tags=("blurred", "odd")),
        mark_of(pair("p1"), "a", "max", tags=("left one made up",)),
    ]
    assert known_tags(marks, "mia") == [*TAGS, "blurred", "odd"]
