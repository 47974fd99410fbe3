"""How an attempt is started, found again, watched and ended: one protocol for processes and Ray jobs.

A handle is asked and never waited on: the worker looks at all of its runs in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mmrl.jobs.records import Attempt, Lease
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs.stopping import StopWord


@dataclass(frozen=True)
class Launch:
    """What is started. environment: what the trainer gets beside the worker's own."""

    lease: Lease
    folder: RunFolder
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        return mark_of(self.lease.job_id, self.lease.attempt)

    @property
    def external_id(self) -> str:
        """The same for every try at this attempt, so that a second one finds the first."""
        return external_id_of(self.lease.job_id, self.lease.attempt)


@dataclass(frozen=True)
class Ended:
    """How an attempt's process ended.

    exit_code: 128 + N after signal N; None where nobody saw it. reason: in the launcher's words, where it has some.
    is_infrastructure: the launcher itself knows that the machine or the cluster failed, not the run.
    """

    exit_code: int | None
    reason: str = ""
    is_infrastructure: bool = False


class LaunchFault(Exception):
    """The attempt could not be started. is_infrastructure: another try may succeed."""

    def __init__(self, message: str, *, is_infrastructure: bool = True) -> None:
        super().__init__(message)
        self.is_infrastructure = is_infrastructure


class Handle(Protocol):
    """A started attempt."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What `Leases.launched` writes down so that another worker finds the attempt."""
        ...

    @property
    def has_started(self) -> bool:
        """Whether the trainer's process has begun; a cluster may let it wait."""
        ...

    def fileno(self) -> int | None:
        """A descriptor of this machine that becomes readable when the attempt ends; the caller closes it. None where
        there is none, and the handle must be asked."""
        ...

    def poll(self) -> Ended | None:
        """None while it runs. Also None while the backend cannot be asked."""
        ...

    def ask_to_stop(self, word: StopWord) -> None:
        """A request that leaves time for a checkpoint."""
        ...

    def press(self) -> None:
        """The grace is over: everything of the attempt is told to end at once."""
        ...

    def kill(self) -> None:
        """What still runs is killed; may be called again and again."""
        ...

    def is_gone(self) -> bool:
        """Proof that nothing of the attempt runs any more."""
        ...


class Launcher(Protocol):
    def start(self, launch: Launch) -> Handle:
        """Raises LaunchFault. A second start of the same attempt gives the handle of the first."""
        ...

    def look(self, job_id: str, attempt: int, folder: RunFolder) -> Handle | None:
        """What runs of the attempt on this machine, or on the cluster. Raises Unreachable."""
        ...

    def find(self, attempt: Attempt, folder: RunFolder) -> Handle | None:
        """The attempt as another worker left it; None where nothing of it can be running. Raises Unreachable."""
        ...


class Unreachable(Exception):
    """Whether the attempt runs cannot be told from here, or not now."""


def mark_of(job_id: str, attempt: int) -> str:
    return f"{job_id}/{attempt}"


def external_id_of(job_id: str, attempt: int) -> str:
    return f"mmrl-{job_id}-{attempt}"
