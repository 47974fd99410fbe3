"""Responses, Compare and Label in a real browser: how they look, and that they work by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from looking import settle
from playwright.sync_api import Page, expect
from squares import evaluate_squares

Consoles = Callable[..., Any]
NUM = 4


@pytest.mark.parametrize(
    ("name", "path", "words"),
    [
        ("responses", "/responses?run={run}&step=60&tokens=logprob", "Which colour is shape 0?"),
        ("compare-checkpoints", "/compare", "newly solved"),
        ("label", "/label", "Left is better"),
    ],
)
def test_each_page_looks_right_and_is_accessible(
    name: str,
    path: str,
    words: str,
    start_console: Consoles,
    open_page: Callable[..., Page],
    look_over: Callable[[Page, str], list[Path]],
) -> None:
    console, home = start_console("small")
    with home.active():
        evaluate_squares(home)
    page = open_page(console, path.format(run=home.jobs["running"]))
    expect(page.get_by_text(words).first).to_be_visible()
    assert len(look_over(page, name)) == 4


def test_pairs_are_judged_by_keyboard_and_a_reload_loses_nothing(
    start_console: Consoles, open_page: Callable[..., Page]
) -> None:
    console, home = start_console("empty")
    with home.active():
        evaluate_squares(home)
    page = open_page(console, "/label")
    for place, key in enumerate("1243"):
        expect(page.get_by_text(f"{place} of {NUM} judged")).to_be_visible()
        settle(page)
        left = page.locator(".st-key-label-answer-left").inner_text()
        if place == 2:
            page.reload()
            settle(page)
            expect(page.locator(".st-key-label-answer-left")).to_have_text(left, use_inner_text=True)
        settle(page)
        page.keyboard.press(key)
        if place == 0:
            page.keyboard.press("4")  # at once: about the same pair still, whose mark stays as it was set
    expect(page.get_by_text("All judged")).to_be_visible()
    settle(page)
    page.keyboard.press("z")
    expect(page.get_by_text(f"{NUM - 1} of {NUM} judged")).to_be_visible()
    settle(page)
    page.keyboard.press("3")
    expect(page.get_by_text("All judged")).to_be_visible()
    settle(page)
    page.keyboard.press("v")
    expect(page.get_by_text("People divided").first).to_be_visible()
    expect(page.get_by_role("button", name="Take back the last one")).to_have_count(0)
    page.get_by_role("button", name="Make the data set").click()
    expect(page.get_by_text("marks: 2 pairs")).to_be_visible()
    page.get_by_role("link", name="New run on them").click()
    expect(page.get_by_role("heading", name="New run")).to_be_visible()


def test_a_response_is_found_and_read_and_the_address_brings_it_back(
    start_console: Consoles, open_page: Callable[..., Page]
) -> None:
    console, home = start_console("small")
    page = open_page(console, f"/run?id={home.jobs['running']}&tab=samples")
    page.get_by_role("link", name="Read them all").click()
    expect(page.get_by_text("Which colour is shape 0?", exact=True)).to_be_visible()
    page.get_by_role("button", name="Later").click()
    expect(page.get_by_text("Which colour is shape 1?", exact=True)).to_be_visible()
    page.get_by_text("logprob", exact=True).click()
    expect(page.locator("[data-testid=stHtml] span[title='−0.1000']").first).to_be_visible()
    page.reload()
    expect(page.get_by_text("Which colour is shape 1?", exact=True)).to_be_visible()
    expect(page.locator("[data-testid=stHtml] span[title='−0.1000']").first).to_be_visible()
    page.goto(f"{console.url}/responses?run={home.jobs['running']}&steps=all")
    page.get_by_role("link", name="step 60, group 1", exact=True).click()
    expect(page).to_have_url(re.compile("step=60&group=1"))
    settle(page)
    page.get_by_text("logprob", exact=True).click()
    expect(page).to_have_url(re.compile("step=60&group=1&tokens=logprob"))
    expect(page.get_by_text("Which colour is shape 1?", exact=True)).to_be_visible()
