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
from mmrl.evaluation.panels import panel_of, save_panel
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
    assert f"a-run@0: better {wins}, worse {2 - wins}, as good 1, none good 0" in _texts(test)
    left, right = marks[0].shown[0], marks[1].shown[1]
    assert [mark.choice for mark in marks] == ["ab"[left], "ab"[right], "tie"]
    assert [mark.reason for mark in marks] == ["too long", None, None]
    assert all(mark.seconds is not None for mark in marks)
    test.button(key="label-undo").click().run()
    assert "2 of 3 judged" in [each.proto.text for each in test.get("progress")]
    test.button(key="FormSubmitter:label-data-Make the data set").click().run()
    assert "marks: 2 pairs" in _texts(test)
    assert len(list(load_dataset("marks@train"))) == 2


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
    assert "Answer 2 · place 1" in _texts(test)
    test = run_page("label", home, way="ranking")
    assert "Answer 2 · place 1" in _texts(test), "half a ranking is kept"
    for name in ("tie", "place-4", "place-1", "place-3"):
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
    assert "a-run@0: better" in _texts(test)
    assert len(_marks(panel)) == 1
