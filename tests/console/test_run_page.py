"""The page of one run without a browser: every part of every run in every home, and what can be done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from homes import NASTY, Home

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.jobs.states import Desired, JobState

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]

PARTS = ("curves", "log", "history", "checkpoints", "samples", "config", "lineage", "hardware")


def _job(home: Home, name: str) -> Job:
    with home.active(), Database.open() as database:
        return Jobs(database).get(home.jobs[name])


def _texts(test: Any) -> str:
    return "\n".join(element.value for kind in ("text", "markdown", "caption", "code") for element in test.get(kind))


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("small", ("running", "failed", "lost", "starting", "draft", "waiting", "no-worker")),
        ("broken", ("no-folder", "half-written", "no-checkpoint", "never-started")),
    ],
)
@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_every_run_is_whole(
    shared_home: Homes, run_page: RunPage, kind: str, names: tuple[str, ...], part: str
) -> None:
    home = shared_home(kind)
    for name in names:
        test = run_page("run", home, id=home.jobs[name], tab=part)
        assert not test.exception, name
        assert test.title[0].value == name.replace("-", "\\-"), name


def test_a_run_that_is_not_there_is_said_so(shared_home: Homes, run_page: RunPage) -> None:
    assert "There is no such run" in _texts(run_page("run", shared_home("small"), id="no-such-run"))
    assert "No run is named" in _texts(run_page("run", shared_home("empty")))


def test_a_run_that_ended_before_its_first_step_promises_no_curves(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("broken")
    told = _texts(run_page("run", home, id=home.jobs["never-started"]))
    assert "It ended before a first step" in told
    assert "as soon as" not in told


def test_the_head_tells_progress_pace_and_cause(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    running = run_page("run", home, id=home.jobs["running"])
    assert "step 60 of 100 · 1.7 s a step · about 1 min" in running.get("progress")[0].proto.text
    failed = _texts(run_page("run", home, id=home.jobs["failed"]))
    assert "no number in 'grey'" in failed
    assert "reward function 'my_reward'" in failed


def test_curves_come_in_groups_that_the_address_names(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("run", home, id=home.jobs["succeeded"])
    overview = len(test.get("vega_lite_chart"))
    assert overview >= 6
    test = run_page("run", home, id=home.jobs["succeeded"], group="Time")
    assert "**timing\\_s\\/rollout**" in _texts(test)
    assert len(test.get("vega_lite_chart")) == 3
    test.multiselect(key="curves-metrics").set_value(["actor/lr"]).run()
    assert test.query_params["metric"] == "actor/lr"
    assert len(test.get("vega_lite_chart")) == 1


def test_buttons_are_open_where_the_state_allows_them(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    open_buttons = {
        name: {button.key for button in run_page("run", home, id=home.jobs[name]).button if not button.disabled}
        & {"run-resume", "run-pause", "run-stop", "run-kill", "run-retry"}
        for name in ("running", "paused", "failed", "succeeded", "stopping")
    }
    assert open_buttons == {
        "running": {"run-pause", "run-stop", "run-kill"},
        "paused": {"run-resume", "run-stop"},
        "failed": {"run-resume", "run-retry"},
        "succeeded": set(),
        "stopping": {"run-kill"},
    }


def test_stop_asks_and_then_asks_the_worker(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("run", home, id=home.jobs["running"])
    test.button(key="run-stop").click().run()
    test.button(key="asked-yes").click().run()
    assert _job(home, "running").desired is Desired.CANCEL
    assert "stopping" in _texts(test)


def test_resume_acts_once_for_two_clicks(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("run", home, id=home.jobs["failed"])
    test.button(key="run-resume").click().run()
    test.button(key="run-resume").click().run()
    assert not test.exception
    with home.active(), Database.open() as database:
        children = Jobs(database).children(home.jobs["failed"])
    assert [child.state for child in children] == [JobState.QUEUED]


def test_tags_and_note_are_kept(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    job_id = home.jobs["succeeded"]
    test = run_page("run", home, id=job_id)
    test.text_area(key=f"note-{job_id}").set_value("the *first*")
    test.button(key=f"notes-save-{job_id}").click().run()
    assert not test.exception
    assert (_job(home, "succeeded").note, _job(home, "succeeded").tags) == ("the *first*", ("baseline",))
    assert "the *first*" in [text.value for text in test.text]


def test_the_log_is_searched_and_turned_by_the_address(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    log = Path(_job(home, "failed").run_dir) / "attempt-1" / "logs" / "stderr.log"
    log.write_text("".join(f"line {number} of many\n" for number in range(20_000)) + f"{NASTY}\n")
    test = run_page("run", home, id=home.jobs["failed"], tab="log")
    assert NASTY in test.code[0].value
    assert "line 19999" in test.code[0].value
    assert len(test.code[0].value) < 70_000
    test.button(key="log-earlier").click().run()
    assert "end" in test.query_params
    assert "line 19999 " not in test.code[0].value
    test.text_input(key="log-find").set_value("LINE 77 of").run()
    assert "line 77 of many" in [text.value for text in test.text]
    assert test.query_params["find"] == "LINE 77 of"


def test_a_checkpoint_is_kept_and_exported_from_its_line(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    job_id = home.jobs["succeeded"]
    test = run_page("run", home, id=job_id, tab="checkpoints")
    test.toggle(key=f"keep-{job_id}-50").set_value(True).run()
    assert (Path(_job(home, "succeeded").run_dir) / "checkpoints" / "step-000050" / "pinned.json").is_file()
    test.button(key="export-100").click().run()
    with home.active(), Database.open() as database:
        kinds = [job.kind for job in Jobs(database).list(kind="export")]
    assert kinds == ["export"]


def test_files_that_go_while_the_page_is_open_are_said_to_be_gone(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("run", home, id=home.jobs["running"], tab="log")
    assert test.code
    shutil.rmtree(_job(home, "running").run_dir)
    test.run()
    assert not test.exception
    assert "is not on this machine" in _texts(test)


def test_hostile_text_stands_as_it_is(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("broken")
    for part in ("curves", "history", "samples", "log"):
        test = run_page("run", home, id=home.jobs["failed"], tab=part)
        assert NASTY in "\n".join(text.value for text in test.text)
        assert not any("<img" in each.value for kind in ("markdown", "caption") for each in test.get(kind))


def test_one_who_may_only_look_gets_no_open_button(
    fresh_home: Homes, run_page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from console import context
    from mmrl.jobs.users import Users

    home = fresh_home("small")
    monkeypatch.setattr(context, "viewer", lambda: Users(context.database()).get(home.users["viewer"]))
    test = run_page("run", home, id=home.jobs["running"])
    assert not test.exception
    keys = {"run-resume", "run-pause", "run-stop", "run-kill", "run-retry"}
    assert all(button.disabled for button in test.button if button.key in keys)
