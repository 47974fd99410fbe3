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
from mmrl.jobs.marks import Marks
from mmrl.jobs.users import Users
from mmrl.types import Message, Sample, TextPart

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]
ALONE = SETTINGS.__class__(max_response_tokens=8)


def _texts(test: Any) -> str:
    return "\n".join(element.value for kind in ("text", "markdown", "caption") for element in test.get(kind))


def _two_checkpoints(run: Path, num: int) -> str:
    """Gives the panel's hash."""
    prompts = [Sample(f"s{n}", (Message("user", (TextPart(f"Digit {n}?"),)),), str(n)) for n in range(num)]
    panel = panel_of(prompts, ALONE, name="digits")
    save_panel(panel, ImageStore())
    for step, word in ((0, "old"), (9, NASTY)):
        evaluated(panel, step, *((f"{word} {n}",) for n in range(num)), run=run)
    return panel.hash


@pytest.mark.parametrize("kind", KINDS)
def test_without_two_checkpoints_it_says_what_is_needed(shared_home: Homes, run_page: RunPage, kind: str) -> None:
    test = run_page("label", shared_home(kind))
    assert not test.exception
    assert "Nothing to judge yet" in _texts(test)


def test_pairs_are_judged_blind_to_the_end_and_become_a_data_set(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    panel = _two_checkpoints(home.path / "runs" / "a-run", 3)
    test = run_page("label", home)
    assert "better: " not in _texts(test), "who wins is not told before all are judged"
    test.text_input(key="label-reason").set_value("too long").run()
    for place, button in enumerate(("left", "right", "tie")):
        assert test.get("progress")[0].proto.text == f"{place} of 3 judged"
        assert sum(NASTY in text.value for text in test.text) == 1, "as it stands, on one side"
        test.button(key=f"label-{button}").click().run()
        assert not test.exception
    assert "All judged" in _texts(test)
    with Database.open() as database:
        marks = Marks(database, Users(database).local()).of_panel(panel)
    right = "b" if marks[1].left == "a" else "a"
    assert [mark.choice for mark in marks] == [marks[0].left, right, "tie"]
    assert [mark.reason for mark in marks] == ["too long", None, None]
    assert all(mark.seconds is not None for mark in marks)
    test.button(key="label-undo").click().run()
    assert test.get("progress")[0].proto.text == "2 of 3 judged"
    test.button(key="FormSubmitter:label-export-Make the data set").click().run()
    assert "marks: 2 pairs" in _texts(test)
    assert len(list(load_dataset("marks@train"))) == 2


def test_a_skipped_pair_comes_back_when_the_others_are_judged(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    _two_checkpoints(home.path / "runs" / "a-run", 2)
    test = run_page("label", home)
    first = next(text.value for text in test.text if text.value.startswith("Digit"))
    test.button(key="label-skip").click().run()
    assert first not in _texts(test)
    test.button(key="label-both_bad").click().run()
    assert first in _texts(test)
