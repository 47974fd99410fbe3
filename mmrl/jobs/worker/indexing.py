"""The index thread: looks into the run directories of all runs in turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from mmrl.jobs.errors import DatabaseUnavailableError, LeaseLostError
from mmrl.jobs.worker.supervised import Supervised

MOST_LOOKS = 20
"""At one run before the next one has its turn."""


class Indexing:
    """runs: gives those that there are now. num_rows, num_samples, seconds: of all looks so far."""

    def __init__(self, runs: Callable[[], Sequence[Supervised]], *, every_s: float) -> None:
        self._runs = runs
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mmrl-index", daemon=True)
        self.num_rows = 0
        self.num_samples = 0
        self.num_failed = 0
        self.seconds = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30.0)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            for run in self._runs():
                if self._stop.is_set():
                    return
                self._look(run)

    def _look(self, run: Supervised) -> None:
        """What is refused or cannot be read is left for the next time; the loop finds out about lost leases itself."""
        for _ in range(MOST_LOOKS):
            if run.ended is not None:
                return
            started = time.perf_counter()
            try:
                look = run.indexer.look(run.lease)
            except (LeaseLostError, DatabaseUnavailableError):
                return
            except Exception as error:
                self.num_failed += 1
                if self.num_failed == 1:
                    run.say(f"{run.lease.job.name}: its run directory cannot be indexed: {error}")
                return
            self.num_rows += look.num_rows
            self.num_samples += look.num_samples
            self.seconds += time.perf_counter() - started
            if not look.is_behind:
                return
