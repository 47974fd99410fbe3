"""Views of Responses and Label that are looked at less often: light and dark, wide and narrow, and accessible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from home_runs import add_boxes_run
from homes import Home
from playwright.sync_api import Page, expect
from squares import evaluate_squares

from console.services.label_drawing import Drawing
from console.services.label_items import panel_source
from mmrl.evaluation.finding import all_evaluations
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Marks
from mmrl.jobs.users import Users

pytestmark = pytest.mark.slow
Consoles = Callable[..., Any]
Pages = Callable[..., Page]
LookOver = Callable[[Page, str], list[Path]]


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("responses-gallery", "/responses?run={running}&step=60&view=gallery", "Group 1"),
        ("responses-steps", "/responses?run={running}&step=60&view=steps", "This prompt came at"),
        ("responses-all-steps", "/responses?run={running}&steps=all&find=green", "step 60, group 1"),
        ("responses-boxes", "/responses?run={boxes}&group=0", "Green, solid"),
        ("label-ranking", "/label?from=run&run={boxes}&way=ranking", "which one?"),
    ],
)
def test_each_view_looks_right_and_is_accessible(
    name: str, path: str, words: str, start_console: Consoles, open_page: Pages, look_over: LookOver
) -> None:
    console, home = start_console("small")
    with home.active(), Database.open() as database:
        add_boxes_run(home, database)
    page = open_page(console, path.format(**home.jobs))
    expect(page.get_by_text(words).first).to_be_visible()
    if name == "label-ranking":
        page.keyboard.press("2")
        expect(page.get_by_text("Answer 2 · 1st")).to_be_visible()
    assert len(look_over(page, name)) == 4


def test_what_came_of_marks_looks_right_and_is_accessible(
    start_console: Consoles, open_page: Pages, look_over: LookOver
) -> None:
    console, home = start_console("small")
    with home.active():
        evaluate_squares(home)
        _judge(home)
    page = open_page(console, "/label")
    expect(page.get_by_text("Krippendorff").first).to_be_visible()
    assert len(look_over(page, "label-agreement")) == 4


def _judge(home: Home) -> None:
    """Two people judge all pairs, and are divided over the last one; one of them was told what came of it."""
    source = panel_source(sorted(all_evaluations(), key=lambda each: each.model.step or 0))
    items = source.items(Drawing())
    with Database.open() as database:
        users = Users(database)
        for number, person in enumerate((users.local(), users.get(home.users["member"]))):
            marks = Marks(database, person)
            for place, item in enumerate(items):
                is_first = place % 2 == 0 or (number == 1 and place == len(items) - 1)
                ranks, shown = (1, 2) if is_first else (2, 1), item.shown_for(person.id)
                marks.add(source.key, item.prompt.id, item.answers, ranks=ranks, shown=shown, seconds=4.0 + place)
        Marks(database, users.local()).tell([item.key for item in items])
