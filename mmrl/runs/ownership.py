"""Who may write the checkpoints of a run: the attempt whose token lies in the run directory.

A bare trainer takes the next number and a token of its own. One that a supervisor starts is given both by environment;
the supervisor has put them into the run directory before, so that a trainer of an earlier attempt, thought dead, loses
the run at that moment and not only when its successor comes to write.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mmrl.errors import ConflictError
from mmrl.runs import layout
from mmrl.runs.disk import write_whole, writing

ATTEMPT_VARIABLE = "MMRL_ATTEMPT"
TOKEN_VARIABLE = "MMRL_ATTEMPT_TOKEN"


@dataclass(frozen=True)
class AttemptClaim:
    """The number and the token of an attempt that a supervisor starts."""

    attempt: int
    token: str

    @classmethod
    def from_environment(cls) -> AttemptClaim | None:
        """What this process was given, once: its children do not see it. None where nobody gave anything."""
        attempt, token = os.environ.pop(ATTEMPT_VARIABLE, None), os.environ.pop(TOKEN_VARIABLE, None)
        if attempt is None or token is None:
            return None
        if not attempt.isdecimal() or int(attempt) < 1:
            raise ConflictError(f"{ATTEMPT_VARIABLE} is {attempt!r}; must be the number of an attempt, from 1")
        return cls(int(attempt), token)

    @property
    def environment(self) -> dict[str, str]:
        return {ATTEMPT_VARIABLE: str(self.attempt), TOKEN_VARIABLE: self.token}


def new_token() -> str:
    return secrets.token_hex(16)


def read_owner(run_dir: Path) -> dict[str, Any] | None:
    """Token, attempt, process id and host of the attempt that may write here; None if no attempt took it yet."""
    try:
        owner = json.loads((run_dir / layout.OWNER_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return owner if isinstance(owner, dict) else None


def take_ownership(run_dir: Path, claim: AttemptClaim, *, pid: int | None) -> None:
    """Puts the claim into the run directory. pid: the trainer's; None as long as it has not begun.

    Raises ConflictError where a later attempt owns the run, or this attempt with another token.
    """
    with _locked(run_dir):
        owner = read_owner(run_dir) or {}
        number = owner.get("attempt")
        is_taken = number == claim.attempt and owner.get("token") != claim.token
        if isinstance(number, int) and (number > claim.attempt or is_taken):
            raise ConflictError(
                f"attempt {claim.attempt} may not begin in {run_dir}: "
                + (f"attempt {number} has taken over" if number > claim.attempt else "another process began it already")
            )
        owner = {"token": claim.token, "attempt": claim.attempt, "pid": pid, "host": socket.gethostname()}
        since = datetime.now(UTC).isoformat(timespec="milliseconds")
        write_whole(run_dir / layout.OWNER_FILE, json.dumps({**owner, "since": since}).encode() + b"\n")


@contextlib.contextmanager
def _locked(run_dir: Path) -> Iterator[None]:
    """One at a time; the lock goes with the process that holds it. Where a filesystem locks no folders, none is held:
    two must then come within the same millisecond to be mistaken."""
    with writing(run_dir):
        handle = os.open(run_dir, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
