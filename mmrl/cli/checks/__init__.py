"""What `mmrl doctor` looks at: `packages` (what is installed), `machine` (devices, memory, disk), `abilities` (what
will and will not work). Each check is a function that returns `Check`s and never raises for what it finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]
Group = Literal["packages", "machine", "abilities"]


@dataclass(frozen=True)
class Check:
    """One finding. warn: something will not work, or badly; fail: nothing will. `fix` says what to do, None if ok."""

    group: Group
    name: str
    status: Status
    detail: str
    fix: str | None = None


__all__ = ["Check", "Group", "Status"]
