"""Home, Cluster, Settings and the pages of data in a real browser: how they look, that they live without a reload, and
what they do when things go."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from console_process import ConsoleProcess
from homes import NASTY
from job_rows import new_job
from playwright.sync_api import Page, expect
from postgres_server import PostgresServer

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.pools import Fleet
from mmrl.jobs.users import Users

PAGES = {
    "home": ("/", "Best checkpoints"),
    "datasets": ("/datasets", "Data sets"),
    "dataset": ("/dataset?name=shapes", "shapes"),
    "dataset-statistics": ("/dataset?name=shapes&view=statistics", "shapes"),
    "new-run": ("/new-run", "Begin with a template"),
    "cluster": ("/cluster", "Pools"),
    "settings": ("/settings", "New token"),
    "settings-people": ("/settings?part=People", "Add somebody"),
    "settings-trackers": ("/settings?part=Trackers", "Secrets"),
    "settings-installation": ("/settings?part=Installation", "Versions"),
}
SLOW_MS = 60_000


@pytest.mark.parametrize("name", PAGES)
def test_each_page_looks_right_and_is_accessible(
    name: str,
    start_console: Callable[..., Any],
    open_page: Callable[..., Page],
    look_over: Callable[[Page, str], list[Path]],
) -> None:
    console, _ = start_console("small")
    path, words = PAGES[name]
    page = open_page(console, path)
    expect(page.get_by_role("heading", name=words).first).to_be_visible()
    assert len(look_over(page, name)) == 4


def test_the_first_steps_are_accessible(
    start_console: Callable[..., Any], open_page: Callable[..., Page], look_over: Callable[[Page, str], list[Path]]
) -> None:
    console, _ = start_console("empty")
    page = open_page(console)
    expect(page.get_by_text("1 · Bring data")).to_be_visible()
    look_over(page, "home-empty")


def test_text_from_outside_is_inert(start_console: Callable[..., Any], open_page: Callable[..., Page]) -> None:
    console, home = start_console("broken")
    with home.active(), Database.open() as database:
        Jobs(database).submit(new_job(NASTY, pool="elsewhere"))
        Users(database).add(NASTY, role="viewer", email="https://evil.example@example.org")
    for path, words in (("/", "CUDA out of memory"), ("/cluster", NASTY), ("/settings?part=People", NASTY)):
        page = open_page(console, path)
        expect(page.get_by_text(words).first).to_be_visible()
        assert page.locator("img[onerror], img[src=x]").count() == 0
        assert page.locator("a[href*=javascript], a[href*=evil]").count() == 0
        page.context.close()


def test_home_tells_what_happens_without_a_reload_and_a_killed_worker_is_replaced(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console: ConsoleProcess
    console, home = start_console("empty", "--worker")
    page = open_page(console)
    expect(page.get_by_text("1 · Bring data")).to_be_visible()
    config = {"name": "probe", "kind": "noop", "noop": {"steps": 60, "step_s": 0.5}}
    with home.active(), Database.open() as database:
        jobs = Jobs(database)
        job = jobs.submit(new_job("probe", config=config))
        expect(page.get_by_text("of 60")).to_be_visible(timeout=SLOW_MS)
        (worker,) = Fleet(database).workers()
        os.kill(worker.pid, signal.SIGKILL)
        expect(page.get_by_text("Nothing runs.")).to_be_visible(timeout=2 * SLOW_MS)
        ended = jobs.get(job.id)
    assert (ended.state, ended.step) == ("succeeded", 60)
    assert "the worker ended with exit code -9; it is started again" in console.log.read_text()
    assert not page.locator("[data-testid=stException]").count()


def test_two_people_see_the_same_and_only_one_may_change_it(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    password = "correct horse battery"
    console, home = start_console("small", environment={"MMRL_CONSOLE_PASSWORD": password})
    with home.active(), Database.open() as database:
        text, _ = Users(database).create_token(home.users["viewer"], "browser", scopes=["read"])
    admin, viewer = (open_page(console, "/cluster", settles=False) for _ in range(2))
    for page, secret in ((admin, password), (viewer, text)):
        page.get_by_label("Password or access token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("active", exact=True)).to_be_visible()
    expect(viewer.get_by_role("button", name="Drain")).to_have_count(0)
    admin.get_by_role("button", name="Drain").click()
    admin.locator(".st-key-confirm_drain button").click()
    for page in (admin, viewer):
        expect(page.get_by_text("draining", exact=True)).to_be_visible()


@pytest.mark.postgres
def test_a_database_that_goes_away_is_told_and_comes_back_by_itself(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    server = PostgresServer.begin()
    try:
        url = server.create_database()
        console, _ = start_console("empty", environment={"MMRL_DATABASE_URL": url})
        page = open_page(console)
        expect(page.get_by_text("1 · Bring data")).to_be_visible()
        server.stop()
        expect(page.get_by_text("The job database does not answer")).to_be_visible(timeout=SLOW_MS)
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        server.start()
        expect(page.get_by_text("1 · Bring data")).to_be_visible(timeout=SLOW_MS)
    finally:
        server.end()
