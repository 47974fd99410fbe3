"""One task at a time in a thread beside the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a task ended: what it gave, or the error that it raised. seconds: from start to end."""

    value: int | None
    error: Exception | None
    seconds: float


class Background:
    """Runs a task in a thread; the next one waits for it. The thread is no daemon, so a process that ends lets it
    finish."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._outcome: Outcome | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, task: Callable[[], int]) -> None:
        """The task before must have been collected."""
        assert self._thread is None, "the outcome of the task before was not collected"
        self._thread = threading.Thread(target=self._run, args=(task,), name=self._name)
        self._thread.start()

    def collect(self, *, wait: bool) -> Outcome | None:
        """The outcome of the task, once; None if there is no task, or it still runs and `wait` is False."""
        if self._thread is None or (self.is_busy and not wait):
            return None
        self._thread.join()
        self._thread = None
        outcome, self._outcome = self._outcome, None
        return outcome

    def _run(self, task: Callable[[], int]) -> None:
        started = time.perf_counter()
        value, failure = None, None
        try:
            value = task()
        except Exception as error:
            failure = error
        self._outcome = Outcome(value, failure, time.perf_counter() - started)
