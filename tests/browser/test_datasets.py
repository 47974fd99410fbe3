"""Data on its way in, in a real browser: uploads, their reports, and what cannot be uploaded."""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from homes import Home
from looking import settle
from playwright.sync_api import Page, Route, expect
from shades import shades_zip

OTHER_WAYS = ("path on the server", "s3://", "hf://")


@pytest.fixture
def datasets_page(start_console: Callable[..., Any], open_page: Callable[..., Page]) -> tuple[Page, Any, Home]:
    console, home = start_console()
    return open_page(console, "/datasets"), console, home


def choose(page: Page, *files: Path) -> None:
    page.locator(".st-key-files input[type=file]").set_input_files([str(file) for file in files])


def check(page: Page) -> None:
    page.get_by_role("button", name=re.compile("^Check (this|these) file")).click()


def registered(home: Home) -> list[str]:
    return sorted(path.parent.name for path in (home.path / "datasets").glob("*/current"))


def test_the_good_rows_can_be_kept(
    datasets_page: tuple[Page, Any, Home], tmp_path: Path, look_over: Callable[[Page, str], list[Path]]
) -> None:
    page, _, home = datasets_page
    choose(page, shades_zip(tmp_path / "shades.zip", with_bad_row=True))
    check(page)
    expect(page.locator(".st-key-verdict")).to_be_visible()
    look_over(page, "report")
    page.get_by_role("button", name="Keep the 23 good rows").click()
    expect(page.get_by_role("heading", name="shades")).to_be_visible()
    expect(page.locator(".st-key-figures")).to_contain_text("Left out")
    assert registered(home) == ["shades"]


def test_the_views_of_a_data_set_stay_in_the_address(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, _ = start_console("small")
    page = open_page(console, "/dataset?name=shapes")
    for name, text in {
        "Images": "row 1",
        "Statistics": "Commonest answers",
        "Versions": "current",
        "Split, mix, export": "Split in two",
    }.items():
        page.locator(".st-key-view").get_by_text(name, exact=True).click()
        expect(page.get_by_text(text).first).to_be_visible()
        page.reload()
        settle(page)
        expect(page.get_by_text(text).first).to_be_visible()


def test_a_split_makes_two_data_sets(start_console: Callable[..., Any], open_page: Callable[..., Page]) -> None:
    console, home = start_console("small")
    page = open_page(console, "/dataset?name=shapes&view=make")
    page.get_by_role("button", name="Split", exact=True).click()
    expect(page.get_by_text("Two new data sets are there:")).to_be_visible()
    assert registered(home) == ["shapes", "shapes-heldout", "shapes-rest"]


@pytest.mark.parametrize(("limit", "megabytes"), [(200, 250), (400, 3_500), (400, 4_600)])
def test_k03_larger_uploads_are_refused_before_they_are_sent_and_other_ways_are_named(
    start_console: Callable[..., Any], open_page: Callable[..., Page], tmp_path: Path, limit: int, megabytes: int
) -> None:
    """limit: as set; 400 MB is the highest."""
    console, home = start_console(environment={"MMRL_CONSOLE_MAX_UPLOAD_MB": str(limit)})
    page = open_page(console, "/datasets")
    large = tmp_path / "large.zip"
    with large.open("wb") as file:
        file.truncate(megabytes * 1_000_000)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "upload_file" in request.url else None)
    before = memory_of(console.process.pid)
    choose(page, large)
    expect(page.locator(".st-key-files")).to_contain_text(f"File must be {limit}.0MB or smaller")
    for way in OTHER_WAYS:
        expect(page.locator(".st-key-add_data")).to_contain_text(way)
    assert sent == []
    assert page.get_by_role("button", name="Check this file").count() == 0
    assert memory_of(console.process.pid) - before < 100_000_000
    assert registered(home) == []


def test_k03_no_number_of_uploads_takes_the_memory(datasets_page: tuple[Page, Any, Home], tmp_path: Path) -> None:
    """What is on disk is let go; what would be too much for all together is refused before it is sent."""
    page, console, _ = datasets_page
    before = memory_of(console.process.pid)
    large = tmp_path / "large.jsonl"
    with large.open("wb") as file:
        file.write(b'{"prompt": "1 + 1?", "answer": "2"}\n')
        file.truncate(150_000_000)
    for _ in range(2):  # 300 MB, were they kept
        choose(page, large)
        check(page)
        expect(page.locator(".st-key-incoming_head")).to_be_visible()
        page.get_by_role("button", name="Throw away").click()
        expect(page.locator(".st-key-add_data")).to_be_visible()
        expect(page.locator(".st-key-files")).not_to_contain_text("large.jsonl")
    assert memory_of(console.process.pid) - before < 250_000_000
    address = urlsplit(console.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    connection.putrequest("PUT", "/_stcore/upload_file/any/file")
    connection.putheader("Content-Length", "450000000")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    told = answer.read().decode()
    assert all(way in told for way in OTHER_WAYS)


def test_k04_an_upload_that_a_proxy_refuses_is_explained_and_registers_nothing(
    datasets_page: tuple[Page, Any, Home], tmp_path: Path
) -> None:
    page, _, home = datasets_page

    def proxy(route: Route) -> None:
        """What one with a limit of 10 MB answers to 16 MB; Chromium tells Playwright no size of what it streams."""
        route.fulfill(status=413, body="Request Entity Too Large")

    page.route("**/_stcore/upload_file/**", proxy)
    large = tmp_path / "large.jsonl"
    large.write_bytes(os.urandom(16_000_000).hex().encode()[:16_000_000])
    choose(page, large)
    expect(page.locator(".st-key-files")).to_contain_text("413")
    expect(page.locator(".st-key-add_data")).to_contain_text("a proxy between here and the server allows less")
    assert page.get_by_role("button", name="Check this file").count() == 0
    assert registered(home) == []
    assert not list((home.path / "uploads").glob("*")) if (home.path / "uploads").exists() else True


def memory_of(pid: int) -> int:
    """Bytes of a process and its children."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(process.memory_info().rss for process in processes)
