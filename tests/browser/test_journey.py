"""The whole way in one piece: from an empty home over uploaded data to runs that are watched, stopped, resumed, cloned
and compared, with a reload at every stage."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acting import button, expect_state, field, key, reload, step_of, wait_for_step, write, yaml
from homes import Home
from looking import settle
from playwright.sync_api import Locator, Page, expect
from shades import NASTY, shades_zip

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job

MOST_CLICKS = 12
PREPARE_MS = 240_000
START_MS = 180_000
"""A worker's process has to import torch, and another test may have the other core."""
OF_THE_TINY_MODEL = ("arithmetic", "digits-")
"""Data sets that come with it, whenever that is: it is prepared beside what is done on the pages."""
CURVE = "chart-reward-mean"
BAD_ROW = re.compile(r"1 of 24 rows cannot be used: no file 'images/missing\.png'")
QUICK = {"MMRL_JOBS_BEAT_S": "0.5", "MMRL_JOBS_LEASE_S": "60", "MMRL_JOBS_GRACE_S": "60"}
SETTINGS = (
    ("Name", "shades-run", "name: shades-run"),
    ("Prompts a step", "4", "prompts_per_step: 4"),
    ("Longest response, tokens", "8", "max_response_tokens: 8"),
    ("Learning rate", "1e-4", "lr: 0.0001"),
    ("Steps", "5000", "steps: 5000"),
)


class Person:
    """Who goes this way. clicks: how many it took so far."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0

    def click(self, what: Locator, timeout: int = 60_000) -> None:
        what.click(timeout=timeout)
        self.clicks += 1

    def upload(self, file: Path) -> None:
        with self.page.expect_file_chooser() as chooser:
            self.click(key(self.page, "files").locator("button").first)
        chooser.value.set_files(str(file))
        self.click(self.page.get_by_role("button", name="Check this file"))


def test_from_an_empty_home_to_two_runs_compared(
    start_console: Callable[..., Any], open_page: Callable[..., Page], tmp_path: Path
) -> None:
    console, home = start_console("empty", "--worker", environment=QUICK)
    person = Person(open_page(console))
    page = person.page
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))

    _prepare_the_tiny_model_meanwhile(person)
    _bring_data(person, home, tmp_path)
    first = _launch(person, home)
    assert person.clicks <= MOST_CLICKS
    _watch(page)
    _stop(page, home, first)
    second = _resume(page, home, first)
    third = _clone(page, home, second)
    _compare(page, second, third)
    assert not page.locator("[data-testid=stException]").count()


def _prepare_the_tiny_model_meanwhile(person: Person) -> None:
    page = person.page
    person.click(page.get_by_role("link", name="New run").first)
    person.click(page.get_by_role("button", name="Prepare the tiny model"))
    expect(page.get_by_text("You may leave this page; it goes on.")).to_be_visible()
    person.click(page.get_by_test_id("stTopNav").get_by_role("link", name="Data sets"))


def _bring_data(person: Person, home: Home, folder: Path) -> None:
    """A row that cannot be used is told of; the mended data is taken in."""
    page = person.page
    person.upload(shades_zip(folder / "shades.zip", with_bad_row=True))
    expect(key(page, "verdict")).to_contain_text(BAD_ROW)
    reload(page)
    expect(key(page, "verdict")).to_contain_text(BAD_ROW)
    expect(key(page, "bad_rows")).to_contain_text("train.jsonl")
    assert "mmrl-unpacked" not in page.inner_text("body")
    for found in (home.path / "datasets").glob("*"):
        assert found.name.startswith(OF_THE_TINY_MODEL), "nothing of data that cannot be used is taken in"
    person.click(page.get_by_role("button", name="Upload the mended data"))
    expect(key(page, "add_data")).to_be_visible()
    person.upload(shades_zip(folder / "shades.zip", extra=f" {NASTY}"))
    expect(page.get_by_text("All 24 rows can be used.")).to_be_visible()
    reload(page)
    name = page.get_by_role("textbox", name="Name of the data set")
    expect(name).to_have_value("shades")
    name.fill("my-shades")
    name.press("Tab")
    settle(page)
    person.click(page.get_by_role("button", name="Register 24 rows"))
    expect(page.get_by_role("heading", name="my-shades")).to_be_visible()
    assert page.url.endswith("/dataset?name=my-shades")
    reload(page)
    expect(page.get_by_text(NASTY)).to_be_visible()
    assert page.locator("img[src='x']").count() == 0


def _launch(person: Person, home: Home) -> Job:
    """GRPO with the tiny model on the data; the draft outlives a reload half-way."""
    page = person.page
    person.click(page.get_by_role("link", name="New run with it"))
    expect(page.get_by_text("a draft, begun with the data my-shades")).to_be_visible()
    expect(page.get_by_role("button", name="Launch")).to_be_disabled()
    expect(key(page, "launch_box")).to_contain_text("model.path: is missing")
    _choose_the_tiny_model(person, home)
    for name, text, written in SETTINGS:
        write(page, name, text)
        expect(yaml(page)).to_have_value(re.compile(written))
    reload(page)
    for name, text, _ in SETTINGS:
        expect(field(page, name)).to_have_value({"1e-4": "0.0001"}.get(text, text))
    facts = key(page, "preflight_facts")
    expect(facts).to_contain_text("24 samples", timeout=START_MS)
    expect(facts).to_contain_text("4 prompts, 32 responses")
    person.click(page.get_by_role("button", name="Launch"))
    expect(page.get_by_role("heading", name="shades-run")).to_be_visible()
    assert re.search(r"/run\?id=[0-9a-f-]{36}$", page.url)
    (job,) = _jobs_of(home)
    assert (job.config["data"]["train"], job.config["algorithm"]["type"]) == ("my-shades", "grpo")
    assert (job.config["train"]["steps"], job.config["optim"]["lr"]) == (5000, 1e-4)
    return job


def _choose_the_tiny_model(person: Person, home: Home) -> None:
    page, model = person.page, home.path / "quickstart" / "model"
    box = page.get_by_role("combobox", name=re.compile("^Model"))
    end = PREPARE_MS // 1000
    while not (model / "config.json").is_file():
        assert end > 0, "the tiny model is not there"
        page.wait_for_timeout(1000)
        end -= 1
    reload(page)
    person.click(box)
    expect(page.get_by_role("option", name=str(model), exact=True)).to_be_visible()
    box.fill(str(model))
    box.press("Enter")
    expect(yaml(page)).to_have_value(re.compile(re.escape(str(model))))
    expect(page.get_by_role("button", name="Launch")).to_be_enabled()


def _watch(page: Page) -> None:
    """The curve grows in the page as it is."""
    expect_state(page, "running")
    wait_for_step(page, CURVE, 2, START_MS)
    page.evaluate("window.isTheSamePage = true")
    seen = step_of(page, CURVE)
    wait_for_step(page, CURVE, seen + 3)
    assert page.evaluate("window.isTheSamePage") is True
    reload(page)
    assert step_of(page, CURVE) > seen


def _stop(page: Page, home: Home, job: Job) -> None:
    button(page, "run-stop").click()
    expect(page.get_by_role("dialog")).to_contain_text("shades-run")
    button(page, "asked-yes").click()
    expect_state(page, "cancelled")
    reload(page)
    expect_state(page, "cancelled")
    assert abs(step_of(page, CURVE) - _job(home, job.id).step) <= 1


def _resume(page: Page, home: Home, stopped: Job) -> Job:
    """Two quick clicks make one run, which goes on where the other one stopped."""
    button(page, "run-resume").dblclick()
    page.get_by_role("link", name=re.compile("Open shades-run")).first.click()
    expect(page).not_to_have_url(re.compile(stopped.id))
    with home.active(), Database.open() as database:
        (child,) = Jobs(database).children(stopped.id)
    expect_state(page, "running")
    wait_for_step(page, CURVE, _job(home, stopped.id).step + 1, START_MS)
    reload(page)
    assert step_of(page, CURVE) > _job(home, stopped.id).step
    return child


def _clone(page: Page, home: Home, parent: Job) -> Job:
    """The form of the clone has the parent's settings; one is changed, and it is launched."""
    key(page, "run-actions").get_by_role("link", name="Clone").click()
    expect(page.get_by_text("a draft, begun with the run shades-run")).to_be_visible()
    reload(page)
    for name, text, _ in SETTINGS:
        expect(field(page, name)).to_have_value({"1e-4": "0.0001"}.get(text, text))
    write(page, "Temperature", "0.7")
    expect(yaml(page)).to_have_value(re.compile(r"temperature: 0\.7"))
    reload(page)
    expect(field(page, "Temperature")).to_have_value("0.7")
    page.get_by_role("button", name="Launch").click()
    expect(page).to_have_url(re.compile(r"/run\?id="))
    clone = _jobs_of(home)[0]
    assert clone.parent_job_id == parent.id
    assert {name for name in clone.config if clone.config[name] != parent.config[name]} == {"rollout"}
    wait_for_step(page, CURVE, 1, START_MS)
    return clone


def _compare(page: Page, first: Job, second: Job) -> None:
    page.goto("/runs")
    settle(page)
    for job in (first, second):
        key(page, f"pick-{job.id}").locator("label").click()
        expect(page).to_have_url(re.compile(job.id))
    button(page, "chosen-compare").click()
    expect(page.get_by_role("heading", name="Compare runs")).to_be_visible()
    for is_again in (False, True):
        if is_again:
            reload(page)
        for job in (first, second):
            link = key(page, "compare-legend").get_by_role("link", name=f"shades-run · {job.short_id}")
            expect(link).to_be_visible()
        expect(key(page, CURVE)).to_be_visible()
        expect(page.get_by_text("rollout.temperature")).to_be_attached()  # a cell of a table that is drawn
        assert page.get_by_text("They have the same settings.").count() == 0


def _job(home: Home, job_id: str) -> Job:
    with home.active(), Database.open() as database:
        return Jobs(database).get(job_id)


def _jobs_of(home: Home) -> list[Job]:
    """The newest first."""
    with home.active(), Database.open() as database:
        return Jobs(database).list()
