"""Every page in every home: no exception, a title, and no database that is opened elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from conftest import APP
from homes import Home

PAGES = tuple(sorted(file.stem for file in (APP.parent / "app_pages").glob("[!_]*.py")))


def about(page: str, home: Home) -> dict[str, str]:
    """What a page that shows one thing is asked for: something that the home has."""
    jobs = list(home.jobs.values())
    if page in ("run", "responses") and jobs:
        return {"id" if page == "run" else "run": home.jobs.get("running", jobs[0])}
    return {"name": home.datasets[0]} if page == "dataset" and home.datasets else {}


def test_every_file_of_a_page_is_in_the_navigation() -> None:
    assert sorted(re.findall(r'st\.Page\("app_pages/(\w+)\.py"', APP.read_text(encoding="utf-8"))) == list(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_in_every_home(page: str, any_home: Home, run_page: Callable[..., Any]) -> None:
    test = run_page(page, any_home, **about(page, any_home))
    assert not test.exception
    assert test.title


@pytest.mark.postgres
@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_with_its_jobs_in_postgresql(
    page: str, postgres_home: Home, run_page: Callable[..., Any]
) -> None:
    test = run_page(page, postgres_home, **about(page, postgres_home))
    assert not test.exception
    assert test.title
    if page == "run":
        assert test.title[0].value == "running"
