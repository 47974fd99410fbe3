"""Why a run is to stop, and what is stronger than what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mmrl.jobs.states import Desired

Reason = Literal["cancel", "kill", "pause", "preempt"]
"""preempt: the worker hands the run over to another."""

REASONS: dict[Desired, Reason] = {Desired.PAUSE: "pause", Desired.CANCEL: "cancel", Desired.KILL: "kill"}
_STRENGTH: dict[Reason, int] = {"preempt": 0, "pause": 1, "cancel": 2, "kill": 3}


@dataclass
class Stop:
    """since: when the run was asked, on the monotonic clock; pressed: since when it has no time left."""

    reason: Reason
    since: float
    pressed: float | None = None

    def is_as_strong_as(self, reason: Reason) -> bool:
        return _STRENGTH[self.reason] >= _STRENGTH[reason]
