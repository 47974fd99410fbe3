"""The states of a job, as data: which follows which, and for what causes. Nothing else decides it.

`predecessors(to)` is what the guard of every write is derived from: `… WHERE state IN (predecessors)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class JobState(StrEnum):
    DRAFT = "draft"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    PAUSED = "paused"
    LOST = "lost"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Desired(StrEnum):
    """What people want of a job; the worker that holds it obeys at its next beat. kill: as cancel, without grace."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"
    KILL = "kill"


_S = JobState
TERMINAL = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
"""A job in one of these never changes again; resuming it makes a child."""
HELD = frozenset({_S.STARTING, _S.RUNNING, _S.STOPPING})
"""A worker holds a lease on the job."""

TRANSITIONS: Mapping[JobState, Mapping[JobState, frozenset[str]]] = MappingProxyType(
    {
        _S.DRAFT: {_S.QUEUED: frozenset({"submit"}), _S.CANCELLED: frozenset({"cancel"})},
        _S.QUEUED: {
            _S.STARTING: frozenset({"claim"}),
            _S.PAUSED: frozenset({"pause"}),
            _S.CANCELLED: frozenset({"cancel", "dependency"}),
        },
        _S.STARTING: {
            _S.RUNNING: frozenset({"started"}),
            _S.QUEUED: frozenset({"retry", "preempted"}),
            _S.FAILED: frozenset({"failed"}),
            _S.STOPPING: frozenset({"cancel", "pause", "preempt"}),
            _S.LOST: frozenset({"lease_expired"}),
        },
        _S.RUNNING: {
            _S.SUCCEEDED: frozenset({"finished"}),
            _S.FAILED: frozenset({"failed"}),
            _S.QUEUED: frozenset({"retry", "preempted"}),
            _S.STOPPING: frozenset({"cancel", "pause", "preempt"}),
            _S.LOST: frozenset({"lease_expired"}),
        },
        _S.STOPPING: {
            _S.CANCELLED: frozenset({"cancel"}),
            _S.PAUSED: frozenset({"pause"}),
            _S.QUEUED: frozenset({"preempted"}),
            _S.SUCCEEDED: frozenset({"finished"}),
            _S.FAILED: frozenset({"failed"}),
            _S.LOST: frozenset({"lease_expired"}),
        },
        _S.PAUSED: {_S.QUEUED: frozenset({"resume"}), _S.CANCELLED: frozenset({"cancel", "dependency"})},
        _S.LOST: {
            _S.RUNNING: frozenset({"adopted"}),
            _S.QUEUED: frozenset({"retry", "resume"}),
            _S.FAILED: frozenset({"failed"}),
            _S.CANCELLED: frozenset({"cancel"}),
        },
        _S.SUCCEEDED: {},
        _S.FAILED: {},
        _S.CANCELLED: {},
    }
)


def predecessors(to: JobState) -> frozenset[JobState]:
    """The states from which a job may go to `to` in one step."""
    return frozenset(state for state, targets in TRANSITIONS.items() if to in targets)


def sources(to: JobState, cause: str) -> frozenset[JobState]:
    """The states from which `cause` may bring a job to `to`. Raises ValueError for a cause that never does."""
    found = frozenset(state for state, targets in TRANSITIONS.items() if cause in targets.get(to, ()))
    if not found:
        causes = sorted({name for targets in TRANSITIONS.values() for name in targets.get(to, ())})
        raise ValueError(f"no job becomes {to} by {cause!r}; causes are {', '.join(causes) or 'none'}")
    return found
