"""How long a worker has heard from the database without a gap: only then does the silence of others mean anything."""

from __future__ import annotations

import threading

from mmrl.jobs.settings import JobsSettings

LATE_BEATS = 1.5
"""A worker that was not heard of for so many beats may be dead."""


class Watch:
    """Of one worker, by the database's clock; times are seconds since 1970.

    While the database was away nobody could beat, and the first worker that reaches it again sees all others silent
    for longer than a lease. A gap in its own beats tells it so: until they have gone on for a whole lease without
    one, in which every living worker has beaten too, it knows nothing of the others. Nor does one that has just joined.
    """

    def __init__(self, settings: JobsSettings) -> None:
        self._lease_s = settings.lease_s
        self._gap_s = LATE_BEATS * settings.beat_s
        self._lock = threading.Lock()
        self._since: float | None = None
        self._last = 0.0

    def begin(self, at: float) -> None:
        """The worker joined."""
        with self._lock:
            self._since = self._last = at

    def note(self, at: float) -> None:
        """The worker has beaten."""
        with self._lock:
            if self._since is None or at - self._last > self._gap_s:
                self._since = at
            self._last = max(self._last, at)

    def is_long_enough(self, now: float) -> bool:
        """Whether a worker that is silent for a lease is gone, and it is not the database that was."""
        with self._lock:
            if self._since is None or now - self._last > self._gap_s:
                return False
            return now - self._since >= self._lease_s
