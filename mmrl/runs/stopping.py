"""How a run is asked to stop: by SIGTERM, or by a file in its attempt's folder where no signal reaches it.

The file says what is meant, `pause` or `cancel` (without it, a signal means `cancel`), and whether a signal comes with
it: the file alone is no request then, so that the signal does not meet a run which has obeyed already and is leaving.

The first request lets the step under way end and a checkpoint of it be written; a second one ends the run at once, and
so does the first before any step began.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args

from mmrl.errors import RunCancelledError
from mmrl.runs.disk import write_whole
from mmrl.runs.layout import STOP_FILE

StopWord = Literal["pause", "cancel"]


_WITH_SIGNAL = "by signal"


def request_stop(attempt_dir: Path, word: StopWord, *, with_signal: bool = False) -> None:
    """with_signal: the caller sends SIGTERM after this."""
    text = f"{word} {_WITH_SIGNAL}\n" if with_signal else f"{word}\n"
    write_whole(attempt_dir / STOP_FILE, text.encode())


class StopRequest:
    """A trainer's ear for requests to stop."""

    def __init__(self, attempt_dir: Path) -> None:
        self._path = attempt_dir / STOP_FILE
        self._is_signalled = False
        self._may_wait = False

    @property
    def is_requested(self) -> bool:
        return self._is_signalled or self._text() in get_args(StopWord)

    @property
    def state(self) -> Literal["paused", "cancelled"]:
        """How a run that stops on request ends."""
        return "paused" if self._text().startswith("pause") else "cancelled"

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """SIGTERM is a request in here. In a thread other than the main one only the file is."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        earlier = signal.signal(signal.SIGTERM, self._signalled)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, earlier)

    @contextlib.contextmanager
    def between_steps(self) -> Iterator[None]:
        """A first request is not obeyed at once in here: whoever loops asks `is_requested` after each step."""
        self._may_wait = True
        try:
            yield
        finally:
            self._may_wait = False

    def raise_after(self, step: int, *, is_saved: bool) -> None:
        """The end of a run that has obeyed a request after `step`."""
        what = "with a checkpoint of it" if is_saved else "without a checkpoint of it"
        raise RunCancelledError(f"the run was {self.state} on request after step {step}, {what}; {_GO_ON}")

    def _signalled(self, *_: object) -> None:
        is_second, self._is_signalled = self._is_signalled, True
        if is_second or not self._may_wait:
            raise RunCancelledError(f"the run was stopped by SIGTERM; {_GO_ON}")

    def _text(self) -> str:
        with contextlib.suppress(OSError):
            return self._path.read_text().strip()
        return ""


_GO_ON = "the same command goes on from its newest checkpoint"
