"""The table of runs: its address, its pages, its lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from console_reads import desk_in
from homes import Home
from job_rows import new_job

from console.services.runs import MAX_COMPARED, PAGE_SIZE, RunQuery, runs_page
from mmrl.jobs.states import JobState

Homes = Callable[[str], Home]


def test_the_address_says_all_that_was_chosen() -> None:
    query = RunQuery(
        states=(JobState.RUNNING, JobState.FAILED),
        kind="rl",
        text="digits",
        tags=("baseline",),
        pool="default",
        owner="local:ann",
        age="7d",
        before="id-1",
        picked=("a", "b"),
    )
    assert RunQuery.of_address(query.address()) == query
    assert RunQuery().address() == {}
    assert query.is_filtered
    assert not RunQuery(picked=("a",), before="b").is_filtered


def test_what_an_address_cannot_mean_is_left_out() -> None:
    found = RunQuery.of_address({"state": "running,nonsense,running", "age": "1y", "pick": "a,,b,a", "kind": ""})
    assert found == RunQuery(states=(JobState.RUNNING,), picked=("a", "b"))
    assert len(RunQuery.of_address({"compare": ",".join(map(str, range(20)))}).compared) == MAX_COMPARED


def test_lines_tell_why_a_run_failed_or_waits_and_how_far_it_is(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        page = runs_page(desk.jobs, RunQuery(), owners=desk.jobs.choices().owners)
        lines = {line.job.name: line for line in page.lines}
        assert page.num_fitting == len(desk.home.jobs) == len(lines)
        assert "no number in 'grey'" in (lines["failed"].why or "")
        assert "needs 1 CPU slot and 8 GPUs" in (lines["too-large"].why or "")
        assert "no worker for pool elsewhere" in (lines["no-worker"].why or "")
        assert "which is running" in (lines["waiting"].why or "")
        assert lines["succeeded"].why is None
        assert (lines["stopping"].state, lines["running"].state) == ("stopping", "running")
        assert lines["running"].pace.step_s == pytest.approx(1.7)
        assert lines["running"].pace.left_s == pytest.approx(40 * 1.7)
        assert lines["succeeded"].pace.left_s is None
        assert lines["running"].owner == desk.viewer.name


def test_pages_go_through_all_runs_once_and_back(fresh_home: Homes) -> None:
    with desk_in(fresh_home("empty")) as desk:
        names = [desk.jobs.submit(new_job(f"run-{number:02d}")).name for number in range(2 * PAGE_SIZE + 3)]
        seen = []
        query: RunQuery | None = RunQuery(picked=("x",))
        pages = []
        while query is not None:
            page = runs_page(desk.jobs, query, owners={})
            pages.append(page)
            seen += [line.job.name for line in page.lines]
            query = page.older
        assert seen == names[::-1]
        assert [len(page.lines) for page in pages] == [PAGE_SIZE, PAGE_SIZE, 3]
        assert pages[0].newer is None
        assert all(page.num_fitting == len(names) for page in pages)
        back = pages[2].newer
        assert back is not None
        assert back.picked == ("x",)
        assert [line.job.id for line in runs_page(desk.jobs, back, owners={}).lines] == [
            line.job.id for line in pages[1].lines
        ]
        top = runs_page(desk.jobs, back, owners={}).newer
        assert top is not None
        first = runs_page(desk.jobs, top, owners={})
        assert (first.newer, first.older is not None) == (None, True)
        assert first.lines == pages[0].lines


def test_a_filter_holds_on_every_page(shared_home: Homes) -> None:
    with desk_in(shared_home("large")) as desk:
        query = RunQuery(states=(JobState.FAILED,), text="sweep")
        page = runs_page(desk.jobs, query, owners={})
        assert page.num_fitting > PAGE_SIZE
        assert page.older is not None
        below = runs_page(desk.jobs, page.older, owners={})
        assert {line.job.state for line in (*page.lines, *below.lines)} == {JobState.FAILED}
        assert replace(page.older, before=None) == query


def test_an_empty_home_has_an_empty_page(shared_home: Homes) -> None:
    with desk_in(shared_home("empty")) as desk:
        page = runs_page(desk.jobs, RunQuery(), owners={})
        assert (page.lines, page.num_fitting, page.newer, page.older) == ((), 0, None, None)
