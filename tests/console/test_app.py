"""Every page in every home: no exception, a title, and no database that is opened elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from homes import Home

PAGES = ("home", "datasets", "dataset", "new_run", "runs", "run", "cluster", "settings")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_whole_in_every_home(page: str, any_home: Home, run_page: Callable[..., Any]) -> None:
    test = run_page(page, any_home)
    assert not test.exception
    assert test.title
