"""Runs in a real browser, with a real worker: by two people, with parts killed, with text from outside."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from acting import button, expect_state, key, reload, step_of, wait_for_step
from console_process import ConsoleProcess
from homes import Home
from looking import settle
from playwright.sync_api import Page, expect

from mmrl.config import NoopConfig
from mmrl.jobs.database import Database
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.jobs.states import JobState

Start = Callable[..., tuple[ConsoleProcess, Home]]
Open = Callable[..., Page]

QUICK = {
    "MMRL_JOBS_BEAT_S": "0.3",
    "MMRL_JOBS_LEASE_S": "3",
    "MMRL_JOBS_GRACE_S": "30",
    "MMRL_JOBS_RETRY_DELAY_S": "0.5",
}
CURVE = "chart-noop-value"


@contextmanager
def _jobs(home: Home) -> Iterator[Jobs]:
    with home.active(), Database.open() as database:
        yield Jobs(database)


def _submit(home: Home, name: str, **noop: Any) -> Job:
    settings = {"steps": 5000, "step_s": 0.1, "checkpoint_every": 20, "samples_per_step": 1, **noop}
    with _jobs(home) as jobs:
        return jobs.submit(job_of(NoopConfig(name=name, noop=settings)))  # type: ignore[arg-type]


def _job(home: Home, job_id: str) -> Job:
    with _jobs(home) as jobs:
        return jobs.get(job_id)


def test_a_closed_browser_stops_no_run_and_the_next_one_goes_on(start_console: Start, open_page: Open) -> None:
    console, home = start_console("empty", "--worker", environment=QUICK)
    job = _submit(home, "lonely")
    page = open_page(console, f"/run?id={job.id}")
    wait_for_step(page, CURVE, 2)
    seen = step_of(page, CURVE)
    page.context.close()
    again = open_page(console, f"/run?id={job.id}&group=Other")
    wait_for_step(again, CURVE, seen + 5)
    assert _job(home, job.id).state is JobState.RUNNING


@contextmanager
def _worker(home: Home) -> Iterator[subprocess.Popen[bytes]]:
    own = {**os.environ, **QUICK, "MMRL_HOME": str(home.path), "MMRL_JOBS_POLL_S": "0.2"}
    with (home.path / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mmrl", "worker", "start", "--cpus", "2", "--gpus", "none"],
            env=own,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_a_killed_worker_breaks_no_page_and_the_next_one_takes_the_run_over(
    start_console: Start, open_page: Open
) -> None:
    console, home = start_console("empty", environment=QUICK)
    job = _submit(home, "orphan")
    page = open_page(console, f"/run?id={job.id}")
    expect(key(page, "run-why")).to_contain_text("no worker for pool default")
    with _worker(home) as first:
        wait_for_step(page, CURVE, 3)
        first.kill()
        first.wait()
    seen = step_of(page, CURVE)
    with _worker(home):
        wait_for_step(page, CURVE, seen + 10)
        expect_state(page, "running")
        assert page.locator('[data-testid="stException"]').count() == 0
        button(page, "run-kill").click()
        button(page, "asked-yes").click()
        expect_state(page, "cancelled")
    assert _job(home, job.id).attempt == 1


def test_two_people_see_the_same_and_nobody_stops_the_wrong_run(start_console: Start, open_page: Open) -> None:
    """One has chosen a run while others come in above it and the other person stops one; only what was chosen ends."""
    console, home = start_console("empty", environment=QUICK)
    jobs = [_submit(home, f"run-{number}") for number in range(3)]
    ann, bob = open_page(console, "/runs"), open_page(console, "/runs")
    key(ann, f"pick-{jobs[1].id}").locator("label").click()
    expect(ann.get_by_text("1 chosen")).to_be_visible()
    newer = [_submit(home, f"newer-{number}") for number in range(3)]
    expect(key(ann, f"runrow-{newer[2].id}")).to_be_visible()
    expect(key(ann, f"pick-{jobs[1].id}").get_by_role("checkbox")).to_be_checked()

    key(bob, f"pick-{jobs[2].id}").locator("label").click()
    button(bob, "chosen-stop").click()
    expect(bob.get_by_role("dialog")).to_contain_text("run-2")
    button(bob, "asked-yes").click()
    expect(key(ann, f"runrow-{jobs[2].id}")).to_contain_text("cancelled")

    button(ann, "chosen-stop").dblclick()
    newest = _submit(home, "newest")
    dialog = ann.get_by_role("dialog")
    expect(dialog).to_contain_text("run-1")
    assert dialog.get_by_text("run-").count() == 1
    button(ann, "asked-yes").dblclick()
    expect(key(bob, f"runrow-{jobs[1].id}")).to_contain_text("cancelled")
    states = {job.name: _job(home, job.id).state for job in (*jobs, *newer, newest)}
    assert {name for name, state in states.items() if state is JobState.CANCELLED} == {"run-1", "run-2"}
    assert {state for name, state in states.items() if name not in ("run-1", "run-2")} == {JobState.QUEUED}


def test_two_quick_choices_are_both_kept_and_can_be_gone_back_from(start_console: Start, open_page: Open) -> None:
    console, home = start_console("small")
    page = open_page(console, f"/run?id={home.jobs['succeeded']}")
    key(page, "curves-axis").locator("button", has_text="time").click()
    key(page, "curves-group").locator("button", has_text="Reward").click()
    expect(page).to_have_url(re.compile(r"x=time.*group=Reward|group=Reward.*x=time"))
    expect(key(page, "chart-reward-exact")).to_be_visible()
    expect(key(page, "curves-axis").locator("[data-selected=true]")).to_have_text("time")
    settle(page)
    page.go_back()
    expect(page).not_to_have_url(re.compile("group="))
    expect(key(page, "chart-actor-entropy")).to_be_visible()


def test_a_link_from_one_run_to_another_stays_there_over_a_reload(start_console: Start, open_page: Open) -> None:
    console, home = start_console("empty")
    parent = _submit(home, "parent")
    with _jobs(home) as jobs:
        child = jobs.submit(job_of(NoopConfig(name="child"), parent_job_id=parent.id))
    page = open_page(console, f"/run?id={parent.id}&tab=lineage")
    settle(page)
    page.get_by_role("link", name="child").click()
    expect(page.get_by_role("heading", name="child")).to_be_visible()
    expect(page).to_have_url(re.compile(f"id={child.id}"))
    reload(page)
    expect(page.get_by_role("heading", name="child")).to_be_visible()


def test_hostile_text_does_nothing(start_console: Start, open_page: Open) -> None:
    console, home = start_console("broken")
    page = open_page(console, "/runs")
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    expect(key(page, f"runrow-{home.jobs['failed']}")).to_contain_text("<img src=x onerror=alert(1)> **bold**")
    for part in ("log", "history", "samples"):
        page.goto(f"/run?id={home.jobs['failed']}&tab={part}")
        expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_visible()
        assert page.locator('img[src="x"]').count() == 0


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("runs", "/runs?pick={running}"),
        ("compare", "/runs?compare={succeeded},{running},{failed}"),
        ("run", "/run?id={succeeded}"),
        pytest.param("run-log", "/run?id={failed}&tab=log", marks=pytest.mark.slow),
        pytest.param("run-checkpoints", "/run?id={succeeded}&tab=checkpoints", marks=pytest.mark.slow),
        pytest.param("run-history", "/run?id={failed}&tab=history", marks=pytest.mark.slow),
        pytest.param("run-samples", "/run?id={succeeded}&tab=samples", marks=pytest.mark.slow),
    ],
)
def test_pages_are_accessible_and_photographed(
    start_console: Start,
    open_page: Open,
    check_accessible: Callable[[Page], None],
    shoot: Callable[[Page, str], list[Path]],
    name: str,
    path: str,
) -> None:
    console, home = start_console("small")
    page = open_page(console, path.format(**home.jobs))
    check_accessible(page)
    assert len(shoot(page, name)) == 4
