"""What a person does in the console, for browser tests: fills in the form of a run, watches a run."""

from __future__ import annotations

import re

from looking import settle
from playwright.sync_api import Locator, Page, expect

SLOW_MS = 60_000
"""For what a worker has to do first."""
_REACHED = """([chart, step]) => {
  const found = document.querySelector(`.st-key-${chart}`)?.innerText.match(/at step ([0-9,]+)/);
  return found && Number(found[1].replaceAll(',', '')) > step;
}"""


def key(page: Page, name: str) -> Locator:
    """What has a key of Streamlit's."""
    return page.locator(f".st-key-{name}")


def button(page: Page, name: str) -> Locator:
    return key(page, name).get_by_role("button")


def reload(page: Page) -> None:
    page.reload()
    settle(page)


def field(page: Page, name: str) -> Locator:
    return page.get_by_role("textbox", name=name, exact=True).or_(page.get_by_role("spinbutton", name=name, exact=True))


def write(page: Page, name: str, text: str) -> None:
    """Types a value once the page has taken the last one."""
    settle(page)
    field(page, name).fill(text)
    field(page, name).press("Enter")


def yaml(page: Page) -> Locator:
    return page.locator(".st-key-as_text textarea")


def choose_files(page: Page, *files: object) -> None:
    page.locator(".st-key-files input[type=file]").set_input_files([str(file) for file in files])


def step_of(page: Page, chart: str) -> int:
    """How far a curve on the page is. chart: the key of its card."""
    found = re.search(r"at step ([\d,]+)", key(page, chart).inner_text())
    return int(found[1].replace(",", "")) if found else 0


def wait_for_step(page: Page, chart: str, step: int, timeout: int = SLOW_MS) -> None:
    """Until a curve is beyond a step."""
    page.wait_for_function(_REACHED, arg=[chart, step], timeout=timeout)


def expect_state(page: Page, state: str) -> None:
    expect(key(page, "run-status").last).to_contain_text(state, timeout=SLOW_MS)
