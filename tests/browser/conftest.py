"""Fixtures of the browser's tests: Chromium, the console as a process, and pages that are watched meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from console_process import ConsoleProcess, console_process
from homes import Home, build_home
from looking import THEMES, faults, lasting_faults, looking, settle, shoot
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
_WAIT_MS = 60_000
"""For what is to come; a machine that is busy with other tests is slow."""
expect.set_options(timeout=_WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Of a module's own: tests of other modules, which may run in the same process, count its children."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def start_console(tmp_path: Path) -> Iterator[Callable[..., tuple[ConsoleProcess, Home]]]:
    """`start_console(kind, *words, environment=…)`: `mmrl console` in a fresh home of that kind (see `homes`), with no
    worker unless `--worker` is among the words. Ended with the test."""
    with ExitStack() as stack:

        def start(kind: str = "empty", *words: str, environment: Any = None) -> tuple[ConsoleProcess, Home]:
            home = build_home(kind, tmp_path / kind)
            how = words if "--worker" in words else ("--no-worker", *words)
            kept_alive = {} if kind == "empty" else {"MMRL_JOBS_LEASE_S": "86400"}
            process = stack.enter_context(
                console_process(home.path, *how, environment=kept_alive | (environment or {}))
            )
            return process, home

        yield start


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`open_page(console, path)`: a page of a new browser of its own. What goes wrong in it fails the test: an error in
    its script, or a request to another machine. settles: not for pages that are none of Streamlit's."""
    problems: list[str] = []
    with ExitStack() as stack:

        def start(console: ConsoleProcess, path: str = "/", *, settles: bool = True, **options: Any) -> Page:
            context = browser.new_context(
                base_url=console.url, viewport={"width": 1280, "height": 800}, color_scheme="light", **options
            )
            stack.callback(context.close)
            context.set_default_timeout(_WAIT_MS)
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(f"script: {error}"))
            page.on("request", lambda request: problems.extend(_foreign(request.url)))
            page.goto(path)
            if settles:
                settle(page)
            return page

        yield start
    assert not problems


@pytest.fixture(scope="session")
def known_faults() -> dict[str, set[tuple[str, str]]]:
    """Where `bare_faults` keeps what it found, since a browser lives for a module only."""
    return {}


@pytest.fixture(scope="module")
def bare_faults(
    browser: Browser,
    known_faults: dict[str, set[tuple[str, str]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> set[tuple[str, str]]:
    """What axe-core finds in an empty Streamlit page, in either theme: nobody's fault here."""
    if "bare" not in known_faults:
        known_faults["bare"] = _faults_of_a_bare_page(browser, tmp_path_factory)
    return known_faults["bare"]


def _faults_of_a_bare_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    script = tmp_path_factory.mktemp("bare") / "bare.py"
    script.write_text("import streamlit as st\nst.title('Empty')\n")
    words = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless=true", "--server.port=0"]
    words += ["--server.address=127.0.0.1", "--browser.gatherUsageStats=false", "--server.fileWatcherType=none"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        url = next(line.split()[-1] for line in process.stdout if "http://" in line)
        _wait_until_healthy(url)
        context = browser.new_context()
        page = context.new_page()
        page.goto(url)
        settle(page)
        found: set[tuple[str, str]] = set()
        for theme in THEMES:
            with looking(page, theme=theme, width=1280):
                found |= faults(page).keys()
        context.close()
        return found
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def check_accessible(bare_faults: set[tuple[str, str]]) -> Callable[[Page], None]:
    """`check_accessible(page)`: no serious fault, light or dark, wide or narrow, but those of an empty page."""

    def check(page: Page) -> None:
        for theme in THEMES:
            for width in (1280, 420):
                with looking(page, theme=theme, width=width):
                    own = {where: text for where, text in lasting_faults(page).items() if where not in bare_faults}
                assert not own, (theme, width, own)

    return check


@pytest.fixture(name="shoot")
def _shoot(tmp_path: Path) -> Callable[[Page, str], list[Path]]:
    """`shoot(page, name)`: see `looking.shoot`; into the folder that MMRL_SCREENSHOTS names, else the test's own."""
    return lambda page, name: shoot(page, name, tmp_path / "screenshots")


@pytest.fixture
def look_over(bare_faults: set[tuple[str, str]], tmp_path: Path) -> Callable[[Page, str], list[Path]]:
    """`look_over(page, name)`: `shoot` and `check_accessible` in one."""

    def check(page: Page) -> None:
        own = {where: text for where, text in lasting_faults(page).items() if where not in bare_faults}
        assert not own, own

    return lambda page, name: shoot(page, name, tmp_path / "screenshots", look=check)


def _foreign(url: str) -> list[str]:
    parts = urlsplit(url)
    is_own = parts.scheme in ("data", "blob", "about", "file") or parts.hostname in ("127.0.0.1", "localhost")
    return [] if is_own else [f"request to {url}"]


def _wait_until_healthy(url: str) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.1)
