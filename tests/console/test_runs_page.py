"""The page Runs without a browser: filters and choice in the address, actions by id, comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from homes import NASTY, Home

from console.components.text import literal
from console.services.runs import PAGE_SIZE
from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.states import Desired, JobState

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]


def _names(test: Any) -> list[str]:
    """Of the runs in the table, in its order."""
    return [box.label.split(" ")[1] for box in test.checkbox]


def _state(home: Home, name: str) -> tuple[JobState, Desired]:
    with home.active(), Database.open() as database:
        job = Jobs(database).get(home.jobs[name])
        return job.state, job.desired


def _click(test: Any, key: str) -> Any:
    return test.button(key=key).click().run()


def test_an_empty_home_says_what_to_do_next(shared_home: Homes, run_page: RunPage) -> None:
    test = run_page("runs", shared_home("empty"))
    assert not test.exception
    assert "No runs yet" in test.markdown[0].value
    assert not test.checkbox


def test_every_run_has_a_line_and_failures_their_cause(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("runs", home)
    assert not test.exception
    assert len(test.checkbox) == len(home.jobs)
    told = [caption.value for caption in test.caption]
    assert any(literal("no number in 'grey'") in text for text in told)
    assert any("needs 1 CPU slot and 8 GPUs" in text for text in told)


def test_the_address_filters_and_the_widgets_show_it(shared_home: Homes, run_page: RunPage) -> None:
    test = run_page("runs", shared_home("small"), state="failed,paused", age="7d")
    assert sorted(_names(test)) == ["failed", "paused"]
    assert test.multiselect(key="filter-state").value == [JobState.FAILED, JobState.PAUSED]
    assert test.selectbox(key="filter-age").value == "7d"


def test_a_filter_goes_to_the_address(shared_home: Homes, run_page: RunPage) -> None:
    test = run_page("runs", shared_home("small"), before="zzz")
    test.text_input(key="filter-q").set_value("baseline").run()
    assert _names(test) == ["succeeded"]
    assert test.query_params == {"q": "baseline"}
    test.multiselect(key="filter-state").set_value([JobState.FAILED]).run()
    assert "No run fits" in test.markdown[0].value
    _click(test, "runs-all")
    assert len(test.checkbox) > 5


def test_a_choice_is_of_ids_and_survives_a_filter_and_a_reload(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("runs", home)
    test.checkbox(key=f"pick-{home.jobs['failed']}").check().run()
    test.checkbox(key=f"pick-{home.jobs['paused']}").check().run()
    assert test.query_params["pick"] == f"{home.jobs['failed']},{home.jobs['paused']}"
    test.text_input(key="filter-q").set_value("succeeded").run()
    assert test.query_params["pick"] == f"{home.jobs['failed']},{home.jobs['paused']}"
    again = run_page("runs", home, pick=f"{home.jobs['failed']},{home.jobs['paused']}")
    assert [box.label.split(" ")[1] for box in again.checkbox if box.value] == ["paused", "failed"]


def test_stopping_asks_first_and_stops_exactly_what_was_chosen(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("runs", home, pick=home.jobs["running"])
    _click(test, "chosen-stop")
    assert _state(home, "running") == (JobState.RUNNING, Desired.RUN)
    _click(test, "asked-yes")
    assert _state(home, "running") == (JobState.RUNNING, Desired.CANCEL)
    assert _state(home, "waiting") == (JobState.QUEUED, Desired.RUN)
    assert not test.exception


def test_leaving_a_run_as_it_is_changes_nothing(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("runs", home, pick=home.jobs["running"])
    _click(test, "chosen-kill")
    _click(test, "asked-no")
    assert _state(home, "running") == (JobState.RUNNING, Desired.RUN)


def test_pausing_and_resuming_act_at_once_and_tell_it(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    test = run_page("runs", home, pick=f"{home.jobs['waiting']},{home.jobs['succeeded']}")
    _click(test, "chosen-pause")
    assert _state(home, "waiting")[0] is JobState.PAUSED
    texts = [text.value for text in test.text]
    assert "waiting is paused." in texts
    assert any(text.startswith("Not done: job") and "it is succeeded" in text for text in texts)


def test_a_run_that_is_gone_from_the_database_breaks_no_choice(shared_home: Homes, run_page: RunPage) -> None:
    test = run_page("runs", shared_home("small"), pick="no-such-id")
    assert not test.exception
    test = run_page("runs", shared_home("small"), compare="no-such-id,nor-this")
    assert not test.exception
    assert any("None of the runs in this address is there" in text.value for text in test.text)


def test_runs_side_by_side_show_curves_differences_and_final_metrics(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    ids = [home.jobs[name] for name in ("succeeded", "running", "failed")]
    test = run_page("runs", home, compare=",".join(ids), metric="reward/mean", x="time", smooth="0.8")
    assert not test.exception
    settings, finals = (frame.value for frame in test.dataframe)
    if "metric" in settings.columns:
        settings, finals = finals, settings
    assert "optim.lr" in list(settings["setting"])
    assert "model.path" not in list(settings["setting"])
    assert "reward/mean" in list(finals["metric"])
    assert test.selectbox(key="curves-smooth").value == 0.8
    charts = test.get("vega_lite_chart")
    assert len(charts) == 1
    _click(test, "compare-back")
    assert len(test.checkbox) == len(home.jobs)


def test_a_thousand_runs_are_paged(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("large")
    test = run_page("runs", home)
    first = _names(test)
    assert len(first) == PAGE_SIZE
    _click(test, "runs-older")
    assert len(_names(test)) == PAGE_SIZE
    assert not {*first} & {*_names(test)}
    assert "before" in test.query_params
    _click(test, "runs-newer")
    assert _names(test) == first


def test_a_broken_home_shows_all_runs_and_hostile_text_as_it_stands(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("broken")
    test = run_page("runs", home)
    assert not test.exception
    assert len(test.checkbox) == len(home.jobs)
    assert any(literal(NASTY) in caption.value for caption in test.caption)
    assert not any(NASTY in each.value for each in (*test.markdown, *test.caption))


@pytest.mark.parametrize("word", ["state", "kind", "age", "pool", "owner", "tag", "q", "before", "after"])
def test_nonsense_in_the_address_is_no_error(shared_home: Homes, run_page: RunPage, word: str) -> None:
    test = run_page("runs", shared_home("small"), **{word: "%' OR 1=1 --<b>"})
    assert not test.exception


def test_a_run_whose_last_worker_is_gone_is_told_as_lost(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    with home.active(), Database.open() as database, database.transaction() as connection:
        gone = sa.update(tables.jobs).where(tables.jobs.c.id == home.jobs["running"])
        connection.execute(gone.values(lease_expires_at=1.0))
    assert "running" in _names(run_page("runs", home, state="lost"))
    assert _state(home, "running") == (JobState.LOST, Desired.RUN)
