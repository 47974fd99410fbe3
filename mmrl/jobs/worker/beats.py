"""The beat: a thread that extends the worker's leases in time, whatever the rest of the worker is busy with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from mmrl.jobs.errors import DatabaseUnavailableError
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Lease, LeaseView

LATE_TRY_S = 1.0
"""Between two tries while the database is away."""


class Beats:
    """current: gives the leases that the worker holds. wake: is called after each beat, and when the database goes away
    or comes back."""

    def __init__(
        self, leases: Leases, *, current: Callable[[], Sequence[Lease]], wake: Callable[[], None], beat_s: float
    ) -> None:
        self._leases = leases
        self._current = current
        self._wake = wake
        self._beat_s = beat_s
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._views: dict[str, LeaseView] = {}
        self.last_beat = time.monotonic()
        """When the database last heard of the worker."""
        self.seconds = 0.0
        """How long the last beat took."""
        self.outage: str | None = None
        """Why the database cannot be reached; None while it can."""
        self._thread = threading.Thread(target=self._run, name="mmrl-beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=self._beat_s + 5.0)

    def take(self) -> dict[str, LeaseView]:
        """What beats have told since this was last asked, the latest of each job."""
        with self._lock:
            views, self._views = self._views, {}
        return views

    def now(self) -> None:
        """One beat, in the thread that calls. Raises DatabaseUnavailableError."""
        held = list(self._current())
        started = time.monotonic()
        views = self._leases.beat(held)
        self.last_beat = time.monotonic()
        self.seconds = self.last_beat - started
        with self._lock:
            self._views |= views

    def _run(self) -> None:
        wait_s = self._beat_s
        while not self._stop.wait(wait_s):
            try:
                self.now()
                wait_s, self.outage = self._beat_s, None
            except DatabaseUnavailableError as error:
                wait_s, self.outage = min(LATE_TRY_S, self._beat_s), str(error)
            except Exception as error:  # a beat that fails for any other reason must not be the last
                wait_s, self.outage = self._beat_s, f"{type(error).__name__}: {error}"
            self._wake()
