"""What an attempt's end means: how it went, and where it failed whether the run or what it ran on was to blame.

What is known comes from three places, the surest first: the exit code, the events of the run directory, the last words
on stderr. A trainer that ended well is believed though its supervisor died before it could write that down.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmrl.errors import (
    EXIT_CONFLICT,
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_RUN_CANCELLED,
    EXIT_WRONG_USE,
)
from mmrl.jobs.retry import ErrorClass, Failure
from mmrl.jobs.worker.launcher import Ended
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs import layout
from mmrl.runs.disk import read_json_lines

_NO_ROOM_BYTES = 1_000_000
_LONGEST = 2000
_STORAGE = re.compile(
    r"no space left|file too large|disk full|disk quota exceeded|input/output error|stale file handle", re.I
)
_MEMORY = re.compile(r"out of memory|OutOfMemoryError|cannot allocate memory|running out of memory", re.I)
_NODE = re.compile(r"its node is gone|Ray cluster knows nothing|was started anew")
_KILLED = re.compile(r"rank \d+ of pool .* died in .*: (?:it was killed from outside|it crashed with)")
_ERROR_LINE = re.compile(r"^error: (.+)$", re.M)
_ASKED_TO_STOP = (EXIT_RUN_CANCELLED, EXIT_INTERRUPTED, 128 + signal.SIGTERM, 128 + signal.SIGINT)


@dataclass(frozen=True)
class Outcome:
    """is_success: the run did all that it had to. was_stopped: it ended on a request, or by a signal that means one.

    failure: of anything else, and of a stop in case nobody who may ask for one did.
    """

    is_success: bool
    was_stopped: bool
    exit_code: int | None
    failure: Failure | None


def outcome_of(ended: Ended, folder: RunFolder) -> Outcome:
    """What became of the attempt whose process has ended."""
    story = _Story(folder)
    code = ended.exit_code
    if code is None:
        code = {"succeeded": EXIT_OK, "cancelled": EXIT_RUN_CANCELLED, "paused": EXIT_RUN_CANCELLED}.get(story.state)
    if code == EXIT_OK:
        return Outcome(True, False, code, None)
    was_stopped = code in _ASKED_TO_STOP
    words = "" if was_stopped or code is None else _last_error(folder, code)
    message = story.failure or words or ended.reason
    error_class = _class_of(code, message, ended, story)
    if was_stopped:
        message = f"it was stopped by a signal that nobody of mmrl's sent ({_how(code)})"
    text = message or _how(code)
    return Outcome(False, was_stopped, code, Failure(error_class, text[:_LONGEST], code))


class _Story:
    """What the attempt wrote down of itself. state: the last one it told."""

    def __init__(self, folder: RunFolder) -> None:
        path = layout.attempt_dir(folder.run_dir, folder.attempt) / layout.EVENTS_FILE
        try:
            rows = read_json_lines(path)
        except Exception:
            rows = []
        states = [str(row.get("state")) for row in rows if row.get("kind") == "state"]
        failures: list[Mapping[str, Any]] = [row for row in rows if row.get("kind") == "failure"]
        self.state = states[-1] if states else ""
        self.failure = str(failures[0].get("message", "")) if failures else ""
        self.error = str(failures[0].get("error", "")) if failures else ""
        self.free_bytes = folder.free_bytes()


def _class_of(code: int | None, message: str, ended: Ended, story: _Story) -> ErrorClass:
    if _STORAGE.search(message) or (story.free_bytes is not None and story.free_bytes < _NO_ROOM_BYTES):
        return "storage"
    if _MEMORY.search(message) or story.error == "OutOfMemoryError":
        return "out_of_memory"
    if _NODE.search(message):
        return "node_lost"
    if _KILLED.search(message):
        return "killed"
    if code is None:
        return "worker_lost"
    if ended.is_infrastructure and code > 128:
        return "killed"
    if code in (EXIT_WRONG_USE, EXIT_NOT_FOUND, EXIT_CONFLICT):
        return "data" if story.error == "DataError" else "config"
    return "killed" if code > 128 or code in _ASKED_TO_STOP else "code"


def _last_error(folder: RunFolder, code: int) -> str:
    """The last `error: …` on stderr, else its last line; what the shell says of a signal is told in our own words."""
    words = folder.last_words()
    errors = _ERROR_LINE.findall(words)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    last = errors[-1] if errors else (lines[-1] if lines else "")
    is_of_shell = code > 128 and last.removesuffix(" (core dumped)") == signal.strsignal(code - 128)
    return _how(code) if is_of_shell else last


def _how(code: int | None) -> str:
    if code is None:
        return "it ended without a word: no exit code, and no end in its events"
    if code > 128:
        number = code - 128
        if number == signal.SIGKILL:
            return "ended by SIGKILL, as the kernel ends a process when memory is short"
        if number in set(signal.Signals):
            return f"ended by {signal.Signals(number).name}"
    return f"exit code {code}"
