"""From a draft to a launched run, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acting import field, write, yaml
from console_process import console_process
from homes import Home
from looking import settle
from playwright.sync_api import Page, expect

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job

PREFLIGHT_MS = 120_000
TYPED = (
    ("Name", "quick", "name: quick"),
    ("Responses a prompt", "6", "group_size: 6"),
    ("Prompts a step", "7", "prompts_per_step: 7"),
    ("Longest response, tokens", "9", "max_response_tokens: 9"),
    ("Temperature", "0.7", "temperature: 0.7"),
    ("Steps", "11", "steps: 11"),
)


@pytest.fixture
def tiny(start_console: Callable[..., Any]) -> tuple[Any, Home]:
    """A console on a home with the digits and an untrained tiny model, where `mmrl quickstart` leaves its own."""
    from mmrl.data.digits import build_digits, digit_texts
    from mmrl.models.tiny import build_tiny_qwen2_5_vl

    console, home = start_console()
    with home.active():
        build_digits()
        build_tiny_qwen2_5_vl(home.path / "quickstart" / "model", sentences=digit_texts(), seed=0)
    return console, home


def jobs_of(home: Home) -> list[Job]:
    with home.active(), Database.open() as database:
        return Jobs(database).list()


def test_a_draft_looks_right_and_its_preflight_and_rewards_are_told(
    tiny: tuple[Any, Home], open_page: Callable[..., Page], look_over: Callable[[Page, str], list[Path]]
) -> None:
    page = open_page(tiny[0], "/new-run?template=quickstart")
    expect(page.locator(".st-key-preflight_facts")).to_contain_text("samples", timeout=PREFLIGHT_MS)
    page.get_by_role("button", name="Try the rewards on rows of the data").click()
    expect(page.locator(".st-key-try_out_result")).to_contain_text("reference in a box", timeout=PREFLIGHT_MS)
    look_over(page, "new-run-draft")


def test_fields_typed_one_after_the_other_are_all_kept(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    page = open_page(start_console()[0], "/new-run?template=quickstart")
    for name, text, _ in TYPED:
        field(page, name).focus()
        page.keyboard.press("Control+a")
        page.keyboard.type(text)
        page.keyboard.press("Tab")
        page.wait_for_timeout(100)  # while the page is still drawn for the last one
    for _, _, written in TYPED:
        expect(yaml(page)).to_have_value(re.compile(rf"\b{written}\b"))
    page.reload()
    settle(page)
    for name, text, _ in TYPED:
        expect(field(page, name)).to_have_value(text)


def test_k01_values_stay_when_another_page_was_visited(tiny: tuple[Any, Home], open_page: Callable[..., Page]) -> None:
    page = open_page(tiny[0], "/new-run?template=quickstart")
    write(page, "Name", "kept")
    expect(yaml(page)).to_have_value(re.compile("name: kept"))
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.get_by_test_id("stTopNav").get_by_role("link", name="New run").click()
    page.locator(".st-key-drafts").get_by_role("link", name="kept").click()
    expect(page).to_have_url(re.compile("draft="))
    expect(field(page, "Name")).to_have_value("kept")
    for _ in range(2):  # the page without its draft may be an entry of its own
        if not page.url.endswith("/runs"):
            page.go_back()
            page.wait_for_timeout(1000)
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


def test_k02_a_refresh_and_a_restart_of_the_server_restore_the_draft(
    tiny: tuple[Any, Home], open_page: Callable[..., Page]
) -> None:
    console, home = tiny
    page = open_page(console, "/new-run?template=quickstart")
    field(page, "Name").press("End")
    field(page, "Name").press_sequentially("-half", delay=30)
    expect(yaml(page)).to_have_value(re.compile("name: quickstart-half"))
    write(page, "Steps", "7")
    expect(yaml(page)).to_have_value(re.compile("steps: 7"))
    page.reload()
    settle(page)
    expect(field(page, "Name")).to_have_value("quickstart-half")
    address = page.url.removeprefix(console.url)
    assert console.end() == 0
    with console_process(home.path, "--no-worker") as again:
        other = open_page(again, address)
        expect(field(other, "Name")).to_have_value("quickstart-half")
        expect(field(other, "Steps")).to_have_value("7")


def test_k05_two_quick_clicks_launch_one_run(tiny: tuple[Any, Home], open_page: Callable[..., Page]) -> None:
    console, home = tiny
    page = open_page(console, "/new-run?template=quickstart")
    draft = page.url
    page.get_by_role("button", name="Launch").dblclick(delay=20)
    expect(page.get_by_role("heading", name="quickstart")).to_be_visible()
    settle(page)
    assert len(jobs_of(home)) == 1
    page.goto(draft)
    settle(page)
    expect(page.get_by_text("This draft was launched")).to_be_visible()
    assert page.get_by_role("button", name="Launch").count() == 0
    page.get_by_role("button", name="Copy it").click()
    expect(page.get_by_role("button", name="Launch")).to_be_enabled()
    page.get_by_role("button", name="Launch").click()
    expect(page.get_by_role("heading", name="quickstart")).to_be_visible()
    assert len(jobs_of(home)) == 2


def test_k06_a_draft_that_cannot_be_launched_can_be_kept(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, _ = start_console()
    page = open_page(console, "/new-run?template=empty-sft")
    write(page, "Name", "half-done")
    expect(yaml(page)).to_have_value(re.compile("name: half-done"))
    expect(page.get_by_role("button", name="Launch")).to_be_disabled()
    page.get_by_role("button", name="Keep for later").click()
    expect(page.locator(".st-key-drafts").get_by_role("link", name="half-done")).to_be_visible()
    assert page.url == f"{console.url}/new-run"


def test_k07_confirming_throws_away_the_draft_that_was_meant_once(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, home = start_console()
    for name in ("first", "second", "third"):
        page = open_page(console, "/new-run?template=empty-sft")
        write(page, "Name", name)
        expect(yaml(page)).to_have_value(re.compile(f"name: {name}"))
    page.goto("/new-run")
    settle(page)
    meant = next(file for file in (home.path / "drafts").glob("*.yaml") if "name: second" in file.read_text())
    page.locator(f".st-key-remove_{meant.stem}").get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("second")
    page.get_by_role("button", name="Throw it away").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".st-key-drafts").get_by_role("link", name="second")).to_have_count(0)
    texts = [file.read_text() for file in (home.path / "drafts").glob("*.yaml")]
    assert sorted(re.search(r"name: (\w+)", text)[1] for text in texts) == ["first", "third"]  # type: ignore[index]


def test_yaml_is_checked_with_its_lines_and_the_form_follows_it(
    tiny: tuple[Any, Home], open_page: Callable[..., Page]
) -> None:
    page = open_page(tiny[0], "/new-run?template=quickstart")
    good = yaml(page).input_value()

    def replace(text: str) -> None:
        yaml(page).fill(text)
        yaml(page).press("Control+Enter")

    replace(good.replace("steps: 150", "steps: many"))
    expect(page.locator(".st-key-as_text")).to_contain_text(re.compile(r"line \d+: train\.steps: got 'many'"))
    expect(page.get_by_role("button", name="Launch")).to_be_disabled()
    replace("name: [half")
    expect(page.get_by_text("The YAML has an error, told beside it.")).to_be_visible()
    page.reload()
    settle(page)
    expect(yaml(page)).to_have_value("name: [half")
    replace(good.replace("steps: 150", "steps: 9"))
    expect(field(page, "Steps")).to_have_value("9")
    expect(page.get_by_role("button", name="Launch")).to_be_enabled()


def test_a_past_run_is_the_beginning_of_another_with_one_change(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, home = start_console("small")
    parent = home.jobs["succeeded"]
    page = open_page(console, f"/new-run?from={parent}")
    assert "draft=" in page.url
    write(page, "Learning rate", "3e-5")
    expect(yaml(page)).to_have_value(re.compile("lr: 3e-05"))
    page.get_by_role("button", name="Launch").click()
    expect(page).to_have_url(re.compile(r"/run\?id="))
    with home.active(), Database.open() as database:
        first, second = Jobs(database).get(parent), Jobs(database).list(limit=1)[0]
    assert second.parent_job_id == parent
    changed = {key for key in first.config if first.config[key] != second.config[key]}
    assert changed == {"optim"}
    assert second.config["optim"]["lr"] == 3e-5
