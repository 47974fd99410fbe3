"""The page Home: what it tells in each home, and that nothing from outside is read as markup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from homes import NASTY, Home

Page = Callable[..., Any]


def texts(test: Any) -> str:
    """Everything that the page says."""
    kinds = (test.title, test.subheader, test.text, test.markdown, test.caption, test.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def figures(test: Any) -> dict[str, str]:
    return {metric.label: metric.value for metric in test.metric}


def test_an_empty_home_is_told_what_to_do_first(shared_home: Callable[[str], Home], run_page: Page) -> None:
    test = run_page("home", shared_home("empty"))
    said = texts(test)
    for words in ("1 · Bring data", "2 · Start a run", "3 · Watch it learn", "mmrl worker start"):
        assert words in said
    assert [link.label for link in test.get("page_link")] == ["Data sets", "New run", "Runs"]


def test_what_runs_waits_and_failed_is_told_with_why(shared_home: Callable[[str], Home], run_page: Page) -> None:
    test = run_page("home", shared_home("small"))
    assert figures(test) == {"Running": "4", "Waiting": "3", "Failed": "1", "Workers": "1", "GPUs in use": "0 of 2"}
    said = texts(test)
    assert "no number in 'grey'" in said
    assert "no worker has as many" in said
    assert "no worker for pool elsewhere" in said
    assert "waits for job" in said
    assert "1 min 8 s left" in str([bar.text for bar in test.get("progress")])
    links = [link.label for link in test.get("page_link")]
    assert "running" in links
    assert "running · step 60" in links


def test_what_a_broken_run_told_is_shown_as_it_stands(shared_home: Callable[[str], Home], run_page: Page) -> None:
    test = run_page("home", shared_home("broken"))
    assert any(NASTY in element.value for element in test.text)
    assert not any("<img" in element.value for element in (*test.markdown, *test.caption))
    assert figures(test)["Workers"] == "0"
    assert "No worker is alive" in texts(test) or "silent" in texts(test)


def test_many_runs_are_cut_short_with_the_way_to_all_of_them(
    shared_home: Callable[[str], Home], run_page: Page
) -> None:
    test = run_page("home", shared_home("large"))
    assert figures(test)["Waiting"] == "49"
    labels = [link.label for link in test.get("page_link")]
    assert "All 49 in the queue" in labels
    assert len(labels) < 40


def test_a_database_that_is_away_is_told_and_the_page_stays(
    fresh_home: Callable[[str], Home], run_page: Page, monkeypatch: Any
) -> None:
    home = fresh_home("empty")
    test = run_page("home", home)
    monkeypatch.setenv("MMRL_DATABASE_URL", "postgresql://mmrl@127.0.0.1:1/away")
    test.run()
    assert not test.exception
    assert test.title[0].value == "Home"
    assert "The job database does not answer" in texts(test)
    monkeypatch.delenv("MMRL_DATABASE_URL")
    test.run()
    assert "1 · Bring data" in texts(test)
