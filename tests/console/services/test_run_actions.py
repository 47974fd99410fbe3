"""Stop, kill, pause, resume, retry, tags and notes: what a state allows, once, and only for those who may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from console_reads import desk_in
from homes import Home

from console.services.run_actions import Action, act, act_on_all, describe, may_control, possible
from mmrl.errors import ConflictError, MmrlError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.states import Desired, JobState

Homes = Callable[[str], Home]


def test_what_is_offered_is_what_the_database_lets(fresh_home: Homes) -> None:
    """Each action on a run in each state: what is not offered would do nothing. A run that no worker holds needs no
    kill beside stop, and a lost one is resumed or ended."""
    with desk_in(fresh_home("small")) as desk:
        for name in desk.home.jobs:
            for action in Action:
                job = desk.job(name)
                if action in possible(job):
                    continue
                before = (job.state, job.desired, len(desk.jobs.children(job.id)))
                with suppress(MmrlError):
                    act(desk.jobs, action, job.id)
                after = desk.job(name)
                changed = (after.state, after.desired, len(desk.jobs.children(job.id))) != before
                is_left_out = action is Action.KILL or job.state is JobState.LOST
                assert not changed or is_left_out, f"{action} of a {job.state} run"


def test_stopping_asks_the_worker_and_says_so(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        done = act(desk.jobs, Action.STOP, desk.home.jobs["running"])
        assert done.job.desired is Desired.CANCEL
        assert done.text == "running: it writes a last checkpoint and then ends."
        assert act(desk.jobs, Action.STOP, desk.home.jobs["waiting"]).text == "waiting is cancelled."
        assert act(desk.jobs, Action.KILL, desk.home.jobs["running"]).job.desired is Desired.KILL


def test_a_second_click_on_resume_is_no_error(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        first = act(desk.jobs, Action.RESUME, desk.home.jobs["paused"], num_children=0)
        second = act(desk.jobs, Action.RESUME, desk.home.jobs["paused"], num_children=0)
        assert first.job.state is second.job.state is JobState.QUEUED
        assert second.text == "paused is queued already."


def test_many_clicks_at_once_make_one_child(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        failed = desk.home.jobs["failed"]
        found: list[str] = []

        def click() -> None:
            other = act(desk.jobs, Action.RETRY, failed, num_children=0).other
            found.append(other.id if other else "none")

        clicks = [threading.Thread(target=click) for _ in range(6)]
        for each in clicks:
            each.start()
        for each in clicks:
            each.join()
        assert len(set(found)) == 1
        assert [child.id for child in desk.jobs.children(failed)] == found[:1]


def test_a_late_second_click_makes_no_second_child_though_the_first_has_ended(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        failed = desk.home.jobs["failed"]
        child = act(desk.jobs, Action.RETRY, failed, num_children=0).other
        assert child is not None
        act(desk.jobs, Action.STOP, child.id)
        again = act(desk.jobs, Action.RETRY, failed, num_children=0).other
        assert again is not None
        assert again.id == child.id
        third = act(desk.jobs, Action.RETRY, failed, num_children=1).other
        assert third is not None
        assert third.id != child.id


def test_one_run_that_cannot_be_stopped_keeps_no_other_from_it(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        ids = [desk.home.jobs[name] for name in ("succeeded", "waiting", "running")]
        done = act_on_all(desk.jobs, Action.STOP, ids)
        assert [each.is_error for each in done] == [True, False, False]
        assert "cannot be cancelled: it is succeeded" in done[0].text
        assert desk.job("waiting").state is JobState.CANCELLED
        assert desk.job("running").desired is Desired.CANCEL


@pytest.mark.parametrize("role", ["viewer", "member"])
def test_nobody_changes_what_is_anothers(fresh_home: Homes, role: str) -> None:
    with desk_in(fresh_home("small")) as desk:
        other = desk.as_user(role)
        job = other.job("running")
        assert not may_control(other.jobs, job, other.viewer)
        for action in (Action.STOP, Action.KILL, Action.PAUSE):
            with pytest.raises(ForbiddenError):
                act(other.jobs, action, job.id)
        with pytest.raises(ForbiddenError):
            describe(other.jobs, job.id, note="mine")
        assert desk.job("running").desired is Desired.RUN


def test_tags_are_cleaned_and_bounded(fresh_home: Homes) -> None:
    with desk_in(fresh_home("small")) as desk:
        job = describe(desk.jobs, desk.home.jobs["paused"], tags=[" a  b ", "c", "c", ""], note="as it stands <b>")
        assert (job.tags, job.note) == (("a b", "c"), "as it stands <b>")
        with pytest.raises(ConflictError, match="at most 20 tags"):
            describe(desk.jobs, job.id, tags=[str(number) for number in range(21)])
        with pytest.raises(ConflictError, match="at most 4000 characters"):
            describe(desk.jobs, job.id, note="x" * 4001)
