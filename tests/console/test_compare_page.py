"""The page Compare without a browser: empty, with two checkpoints, by its address, and with texts that stay texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evaluation_builders import SETTINGS, evaluated
from home_runs import grpo_job
from homes import KINDS, NASTY, Home

from mmrl.data.images import ImageStore
from mmrl.evaluation.panels import panel_of, save_panel
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.searching import JobFilter
from mmrl.types import Message, Sample, TextPart

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]


def _texts(test: Any) -> str:
    kinds = ("text", "markdown", "caption", "html")
    return "\n".join(
        str(getattr(element, "value", "") or element.proto.body) for kind in kinds for element in test.get(kind)
    )


def _two_checkpoints(run: Path) -> list[str]:
    """Step 0 and step 9 of a run, asked four prompts twice each: one solved, one lost, one answer is markup."""
    prompts = [Sample(f"s{n}", (Message("user", (TextPart(f"Digit {n}?"),)),), str(n)) for n in range(4)]
    panel = panel_of(prompts, SETTINGS, name="digits")
    save_panel(panel, ImageStore())
    before = [("0", "0"), ("9", "9"), ("2", "2"), ("9", "9")]
    after = [("0", "0"), ("1", "1"), ("9", "9"), (NASTY, NASTY)]
    return [evaluated(panel, step, *answers, run=run).id for step, answers in ((0, before), (9, after))]


@pytest.mark.parametrize("kind", KINDS)
def test_without_evaluations_it_says_how_to_make_one(shared_home: Homes, run_page: RunPage, kind: str) -> None:
    test = run_page("compare", shared_home(kind))
    assert not test.exception
    shown = _texts(test)
    assert "No panel was asked yet" in shown
    assert "What a run evaluates by itself while it trains is no panel" in shown
    assert "mmrl checkpoint evaluate RUN@STEP" in shown


def test_two_checkpoints_are_compared_and_only_what_regressed_is_shown(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    base, other = _two_checkpoints(home.path / "runs" / "a-run")
    test = run_page("compare", home)
    shown = _texts(test)
    assert "**0.5000 → 0.5000**" in shown
    assert "1 wins\\, 2 ties\\, 1 losses on 4 prompts" in shown
    assert "Digit 0?" in shown
    assert "<img" not in shown, "x06"
    assert "&lt;img" in shown
    test.button_group(key="compare-only").set_value("lost").run()
    assert test.query_params["only"] == "lost"
    shown = _texts(test)
    assert "Digit 2?" in shown
    assert "Digit 0?" not in shown
    turned = run_page("compare", home, ids=f"{other},{base}")
    assert "a\\-run\\@\u20600\\, before training** against a\\-run\\@\u20609" in _texts(turned)
    assert not run_page("compare", home, ids="gone", panel="gone", only="gone").exception


def test_missing_answers_are_asked_for_once_and_their_jobs_are_watched(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("compare", home, run=home.jobs["succeeded"], prompts="sampled")
    assert test.multiselect(key="ask-steps").value == ["0", "100"], "step 0 and the best"
    test.button(key="ask-submit").click().run()
    assert not test.exception
    assert test.button(key="ask-submit").disabled, "nothing is left to ask"
    with Database.open() as database:
        made = Jobs(database).search(JobFilter(kinds=("evaluate",)), limit=10)
    assert sorted(job.name for job in made) == ["succeeded-at-0", "succeeded-at-100"]
    assert test.query_params["asked"].startswith("shapes-test-sampled-")
    shown = _texts(test)
    assert "**Answers that are being made**, 2 under way" in shown
    assert "Under way: step 0, step 100." in shown
    again = run_page("compare", home, asked=test.query_params["asked"])
    assert "**Answers that are being made**, 2 under way" in _texts(again), "a reload loses nothing"


def test_checkpoints_that_cannot_be_graded_are_refused_with_what_is_missing(
    fresh_home: Homes, run_page: RunPage
) -> None:
    home = fresh_home("small")
    with Database.open() as database:
        job = Jobs(database).submit(grpo_job("no-data", ["data.eval=null"]))
    assert "has no data.eval" in _texts(run_page("compare", home, run=job.id))
