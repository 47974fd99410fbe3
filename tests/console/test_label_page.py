"""The page Label without a browser: judged to the end, taken back, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluation_builders import SETTINGS, evaluated
from homes import KINDS, NASTY, Home

from mmrl.data.dataset import load_dataset
from mmrl.data.images import ImageStore
from mmrl.data.registry import DatasetRegistry
from mmrl.evaluation.panels import panel_of, read_panel, save_panel
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Mark, Marks
from mmrl.jobs.users import Users
from mmrl.types import Message, Sample, TextPart

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]
ALONE = SETTINGS.__class__(max_response_tokens=8)


def _texts(test: Any) -> str:
    return "\n".join(element.value for kind in ("text", "markdown", "caption") for element in test.get(kind))


def _two_checkpoints(run: Path, num: int, *, responses: int = 1) -> str:
    """Asked so many prompts, with so many different responses of each. Gives the panel's hash."""
    prompts = [Sample(f"s{n}", (Message("user", (TextPart(f"Digit {n}?"),)),), str(n)) for n in range(num)]
    panel = panel_of(prompts, ALONE, name="digits")
    save_panel(panel, ImageStore())
    for step, word in ((0, "old"), (9, NASTY)):
        evaluated(panel, step, *(tuple(f"{word} {n}" + "!" * k for k in range(responses)) for n in range(num)), run=run)
    return panel.hash


def _button(test: Any, name: str) -> Any:
    """That of the item which is shown."""
    return next(button for button in test.button if button.key and button.key.startswith(f"label-{name}-"))


def _has_button(test: Any, label: str) -> bool:
    return any(button.label == label for button in test.button)


def _order(test: Any) -> list[str]:
    """The strip of a ranking under way."""
    return [each.value for each in test.markdown if each.value.startswith("**") and each.value[2].isdigit()]


def _links(test: Any) -> list[Any]:
    return list(test.get("page_link"))


def _words(query: dict[str, Any]) -> dict[str, str]:
    """As they go into an address again."""
    return {name: value[-1] if isinstance(value, list) else value for name, value in query.items()}


def _marks(panel: str) -> list[Mark]:
    with Database.open() as database:
        return Marks(database, Users(database).local()).of_source(panel)


@pytest.mark.parametrize("kind", KINDS)
def test_without_two_checkpoints_it_offers_the_samples_of_runs_or_says_what_is_needed(
    shared_home: Homes, run_page: RunPage, kind: str
) -> None:
    test = run_page("label", shared_home(kind), **{"from": "panel"})
    assert not test.exception
    assert "Two checkpoints that were asked the same panel are needed" in _texts(test)
    test = run_page("label", shared_home(kind))
    assert not test.exception


def test_pairs_are_judged_blind_to_the_end_and_become_a_data_set(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 3)
    test = run_page("label", home)
    next(each for each in test.text_input if each.label.startswith("Why")).set_value("too long").run()
    for place, button in enumerate(("left", "right", "tie")):
        assert f"{place} of 3 judged" in [each.proto.text for each in test.get("progress")]
        assert "a-run@" not in _texts(test), "whose answers they are is not told before all are judged"
        assert sum(NASTY in text.value for text in test.text) == 1, "as it stands, on one side"
        _button(test, button).click().run()
        assert not test.exception
    assert "All judged" in _texts(test)
    marks = _marks(panel)
    wins = sum(mark.choice == "a" for mark in marks)
    assert not test.table, "not before one's marks are to stay"
    test.button(key="label-undo").click().run()
    assert "2 of 3 judged" in [each.proto.text for each in test.get("progress")]
    _button(test, "tie").click().run()
    marks = _marks(panel)
    test.button(key="label-reveal").click().run()
    row = next(each for _, each in test.table[0].value.iterrows() if each["Answers of"].endswith("0"))
    assert row[["Better", "Worse", "As good", "None good"]].tolist() == [str(wins), str(2 - wins), "1", "0"]
    left, right = marks[0].shown[0], marks[1].shown[1]
    assert [mark.choice for mark in marks] == ["ab"[left], "ab"[right], "tie"]
    assert [mark.reason for mark in marks] == ["too long", None, None]
    assert all(mark.seconds is not None for mark in marks)
    test.button(key="FormSubmitter:label-data-Make the data set").click().run()
    assert "marks: 2 pairs" in _texts(test)
    (name,) = DatasetRegistry().names()
    assert name.startswith("marks-a-run-"), "of its own for each source"
    assert len(list(load_dataset(f"{name}@train"))) == 2
    version = DatasetRegistry().find(name).version
    assert f"data={name}%3A{version}" in "".join(link.proto.page + link.proto.query_string for link in _links(test))
    test.query_params["num"] = "10"
    test.run()
    assert "marks: 2 pairs" not in _texts(test), "what was made of other answers is not offered to learn from these"


def test_why_fewer_are_judged_than_were_asked_is_told(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    _two_checkpoints(home.path / "runs" / "a-run", 3)
    test = run_page("label", home, only="differ")
    assert "Of 3 there are 0 to judge; left out are 3 whose rewards do not differ. Choose others" in _texts(test)
    test.query_params["only"] = "any"
    test.run()
    assert "left out" not in _texts(test)


def test_who_judges_blind_is_told_nothing_of_what_others_chose(
    fresh_home: Homes, run_page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 2)
    test = run_page("label", home)
    for _ in range(2):
        next(each for each in test.multiselect if each.label == "Tags").set_value(["left one made up"])
        _button(test, "left").click().run()
    assert [mark.tags for mark in _marks(panel)] == [("left one made up",)] * 2
    with Database.open() as database:
        ben = Users(database).add("Ben", role="member")
    monkeypatch.setattr("console.context.viewer", lambda: ben)
    test = run_page("label", home)
    for num_own in (0, 1):
        assert not test.exception
        assert "no data set can be made" in _texts(test)
        assert not _has_button(test, "Make the data set")
        assert ("1 row" in _texts(test)) == (num_own == 1), "one's own marks alone"
        assert "left one made up" not in next(each for each in test.multiselect if each.label == "Tags").options
        _button(test, "right").click().run()
    assert not _has_button(test, "Make the data set"), "a mark may still be taken back"
    test.button(key="label-reveal").click().run()
    assert "4 rows" in _texts(test)
    assert _has_button(test, "Make the data set")


def test_who_was_shown_what_others_chose_takes_no_mark_back_also_not_in_another_window(
    fresh_home: Homes, run_page: RunPage
) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 2)
    test = run_page("label", home)
    for _ in range(2):
        _button(test, "left").click().run()
    other = run_page("label", home)
    undo = other.button(key="label-undo")
    test.button(key="label-reveal").click().run()
    assert "Answers of" in test.table[0].value.columns
    assert not _has_button(test, "Take back the last one")
    undo.click().run()
    assert "was shown what others chose of these answers" in _texts(other)
    assert len(_marks(panel)) == 2
    assert not _has_button(run_page("label", home), "Take back the last one")


def test_an_admin_may_take_all_along_before_judging_and_is_told_what_that_costs(
    fresh_home: Homes, run_page: RunPage
) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 2)
    test = run_page("label", home)
    _button(test, "left").click().run()
    assert not _has_button(test, "See what came of it"), "there are no others' marks"
    (mark,) = _marks(panel)
    with Database.open() as database:
        max_ = Users(database).add("Max", role="member")
        Marks(database, max_).add(panel, mark.prompt_id, mark.answers, ranks=mark.ranks[::-1])
    test.run()
    assert "judge no longer blind" in _texts(test)
    assert "1 row" in _texts(test), "one's own"
    assert not test.table
    test.button(key="label-reveal").click().run()
    assert "2 rows" in _texts(test)
    assert _has_button(test, "Make the data set")
    assert test.table
    _button(test, "left").click().run()
    made_by = [each.value for each in test.caption if each.value.startswith(("Left · ", "Right · "))]
    assert len(made_by) == 2, "of the divided pair it tells who made which answer"
    assert all(" · reward " in each for each in made_by)


def test_a_second_key_before_the_next_pair_is_drawn_leaves_the_mark_as_it_was_set(
    fresh_home: Homes, run_page: RunPage
) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 2)
    test = run_page("label", home)
    first, second = _button(test, "left"), _button(test, "bad")
    first.click()
    second.click().run()
    assert not test.exception
    (mark,) = _marks(panel)
    assert mark.choice == "ab"[mark.shown[0]]


def test_the_address_keeps_what_is_judged_when_newer_answers_come(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    run = home.path / "runs" / "a-run"
    _two_checkpoints(run, 2)
    address = dict(run_page("label", home).query_params)
    assert {"from", "panel", "ids", "way", "num", "only"} <= address.keys()
    test = run_page("label", home, **_words(address))
    _button(test, "left").click().run()
    evaluated(read_panel("digits"), 12, ("newer 0",), ("newer 1",), run=run)
    test = run_page("label", home, **_words(address))
    assert "1 of 2 judged" in [each.proto.text for each in test.get("progress")]
    assert "newer" not in _texts(test)
    test = run_page("label", home, **_words(address) | {"num": "21"})
    assert "The address asks for how many '21', which is not there" in _texts(test)


def test_the_address_keeps_the_step_of_a_run_that_goes_on(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("label", home, **{"from": "run", "run": home.jobs["running"]})
    words = _words(dict(test.query_params))
    assert (words["run"], words["split"]) == (home.jobs["running"], "train")
    assert words["step"] == next(each.value for each in test.selectbox if each.label == "Step")
    test = run_page("label", home, **words | {"step": "999"})
    assert "The address asks for step '999', which is not there" in _texts(test)


def test_a_skipped_pair_comes_back_when_the_others_are_judged_also_in_a_new_window(
    fresh_home: Homes, run_page: RunPage
) -> None:
    home = fresh_home("empty")
    _two_checkpoints(home.path / "runs" / "a-run", 2)
    test = run_page("label", home)
    first = next(text.value for text in test.text if text.value.startswith("Digit"))
    _button(test, "skip").click().run()
    assert first not in _texts(test)
    test = run_page("label", home)
    assert first not in _texts(test)
    _button(test, "bad").click().run()
    assert first in _texts(test)


def test_a_group_is_ranked_with_ties_and_what_was_begun_is_there_in_a_new_window(
    fresh_home: Homes, run_page: RunPage
) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 1, responses=2)
    test = run_page("label", home, way="ranking")
    _button(test, "place-2").click().run()
    assert "Answer 2 · 1st" in _texts(test)
    test = run_page("label", home, way="ranking")
    assert "Answer 2 · 1st" in _texts(test), "half a ranking is kept"
    assert _order(test) == ["**1st** Answer 2", "**2nd** which one?", "**3rd** –", "**4th** –"]
    _button(test, "tie").click().run()
    assert _order(test) == ["**1st** Answer 2 = which one?", "**2nd** –", "**3rd** –"]
    _button(test, "place-4").click().run()
    assert _order(test) == ["**1st** Answer 2 = 4", "**2nd** which one?", "**3rd** –"]
    for name in ("place-1", "place-3"):
        _button(test, name).click().run()
        assert not test.exception
    (mark,) = _marks(panel)
    assert [mark.ranks[place] for place in mark.shown] == [2, 1, 3, 1]
    assert "All judged" in _texts(test)


def test_the_responses_that_a_run_sampled_for_one_prompt_can_be_judged(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    run = home.jobs["running"]
    test = run_page("label", home, **{"from": "run", "run": run, "step": "60", "num": "10"})
    assert {each.value for each in test.text} >= {"The shape is \\boxed{grey}"}
    _button(test, "left").click().run()
    assert not test.exception
    (mark,) = _marks(f"run:{run}")
    assert {answer.source.rpartition("/")[0] for answer in mark.answers} == {f"{run}/train/60"}


def test_a_viewer_sees_what_came_of_it_and_has_nothing_to_press(
    fresh_home: Homes, run_page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 3)
    test = run_page("label", home)
    _button(test, "left").click().run()
    with Database.open() as database:
        viewer = Users(database).add("Vic", role="viewer")
    monkeypatch.setattr("console.context.viewer", lambda: viewer)
    test = run_page("label", home)
    assert not test.exception
    assert not [each for each in test.button if each.key and each.key.startswith("label-left-")]
    assert "Answers of" in test.table[0].value.columns
    assert len(_marks(panel)) == 1
