"""The frame of the console in a real browser: navigation, permalinks, and how it starts and ends."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console_process import ConsoleProcess
from looking import settle
from playwright.sync_api import Page, expect

PATHS = {
    "/": "Home",
    "/datasets": "Data sets",
    "/new-run": "New run",
    "/runs": "Runs",
    "/cluster": "Cluster",
    "/settings": "Settings",
}


def test_every_page_has_a_permalink_that_a_reload_keeps(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, _ = start_console()
    page = open_page(console)
    for path, title in PATHS.items():
        page.goto(path)
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        page.reload()
        settle(page)
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        assert page.url == console.url + path


def test_pages_are_accessible_and_can_be_photographed(
    start_console: Callable[..., Any],
    open_page: Callable[..., Page],
    check_accessible: Callable[[Page], None],
    shoot: Callable[[Page, str], list[Path]],
) -> None:
    console, _ = start_console()
    page = open_page(console)
    check_accessible(page)
    assert sorted(path.name for path in shoot(page, "frame")) == [
        "frame-narrow-dark.png",
        "frame-narrow-light.png",
        "frame-wide-dark.png",
        "frame-wide-light.png",
    ]


def test_the_console_ends_with_its_command_and_leaves_nothing_behind(start_console: Callable[..., Any]) -> None:
    console: ConsoleProcess
    console, _ = start_console()
    assert console.end() == 0
    try:
        urllib.request.urlopen(console.url, timeout=5)
    except urllib.error.URLError:
        return
    raise AssertionError(f"{console.url} still answers")
