"""Work that may hang, in a thread of its own: a store that does not answer. The worker's loop asks and never waits.

What the work takes may not change while it runs, and what it gives is picked up by the loop: nothing else is shared.
A thread that hangs is left behind, and ends with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")


class Aside(Generic[_Result]):
    """wake: is called from the thread once the work is done."""

    def __init__(self, work: Callable[[], _Result], *, name: str, wake: Callable[[], None] = lambda: None) -> None:
        self._work = work
        self._wake = wake
        self._found: list[_Result] = []
        self._fault: BaseException | None = None
        self._is_done = threading.Event()
        self._since = time.monotonic()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_done(self) -> bool:
        return self._is_done.is_set()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._since

    def result(self) -> _Result:
        """What the work gave, once it is done. Raises what it raised."""
        assert self.is_done
        if self._fault is not None:
            raise self._fault
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:
            self._fault = error
        self._is_done.set()
        self._wake()
