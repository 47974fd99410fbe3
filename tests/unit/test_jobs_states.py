"""The table of states, and what is derived from it."""

from __future__ import annotations

import itertools

import pytest

from mmrl.jobs.states import HELD, TERMINAL, TRANSITIONS, JobState, predecessors, sources


def test_every_state_has_a_row_and_ends_have_no_way_out() -> None:
    assert set(TRANSITIONS) == set(JobState)
    assert {state for state, targets in TRANSITIONS.items() if not targets} == TERMINAL
    assert not TERMINAL & HELD


def test_the_ways_are_those_of_the_design() -> None:
    ways = {str(state): {str(to) for to in targets} for state, targets in TRANSITIONS.items()}
    assert ways == {
        "draft": {"queued", "cancelled"},
        "queued": {"starting", "paused", "cancelled"},
        "starting": {"running", "queued", "failed", "stopping", "lost"},
        "running": {"succeeded", "failed", "queued", "stopping", "lost"},
        "stopping": {"cancelled", "paused", "queued", "succeeded", "failed", "lost"},
        "paused": {"queued", "cancelled"},
        "lost": {"running", "queued", "failed", "cancelled"},
        "succeeded": set(),
        "failed": set(),
        "cancelled": set(),
    }


def test_guards_follow_from_the_table() -> None:
    assert predecessors(JobState.SUCCEEDED) == {JobState.RUNNING, JobState.STOPPING}
    assert sources(JobState.QUEUED, "resume") == {JobState.PAUSED, JobState.LOST}
    for state, to in itertools.product(JobState, JobState):
        for cause in TRANSITIONS[state].get(to, ()):
            assert state in sources(to, cause) <= predecessors(to)
    with pytest.raises(ValueError, match="no job becomes running by 'luck'; causes are adopted, started"):
        sources(JobState.RUNNING, "luck")
    with pytest.raises(ValueError, match="causes are none"):
        sources(JobState.DRAFT, "submit")


def test_every_state_is_reached_and_leads_to_an_end() -> None:
    reached = {JobState.DRAFT}
    while more := {to for state in reached for to in TRANSITIONS[state]} - reached:
        reached |= more
    assert reached == set(JobState)
    for state in set(JobState) - TERMINAL:
        ends = {state}
        while more := {to for one in ends for to in TRANSITIONS[one]} - ends:
            ends |= more
        assert ends & TERMINAL
