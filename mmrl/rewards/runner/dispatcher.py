"""Hands jobs to the workers of a pool, and tells whose fault it is when one ends.

A quick reward costs less than sending it to a process, so a worker gets several jobs in one go, as many as it does in
`TURN_S`; what it has not begun by then comes back and is sent again. Before each job the worker notes its place, in
memory that it shares with this process: when a deadline strikes or the worker dies, that job alone has failed. Those
around it are sent again; the ones before it, `TURN_S` of work at most, are done twice.
"""

from __future__ import annotations

import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import pebble

from mmrl.rewards.outcome import Outcome
from mmrl.rewards.runner import worker
from mmrl.rewards.runner.worker import RETIRED, TURN_S

ENDED_WITHOUT_A_CODE = 256
"""Exit code that stands for a worker which ended on its own with code 0."""

TASKS_A_WORKER = 2
"""One that runs, and one that waits for the worker to be free."""

_MOST_JOBS = 64


@dataclass(frozen=True)
class Job:
    """Responses for one call of the reward at position `source`: one, or a batch.

    pickled_items: a list of `size` RewardItems.
    deadline_s: for all of them together.
    """

    id: int
    source: int
    pickled_items: bytes
    size: int
    deadline_s: float


Done = list[tuple[int, list[Outcome]]]
"""Ids of jobs, and what came of them."""


class Dispatcher:
    """Hands out jobs in their order; those of one reward go together.

    places: for each task that is out, which of its jobs has begun; in memory shared with the workers.
    deliver: takes what is done; called from threads of the pool, and must not wait.
    """

    def __init__(
        self, pool: pebble.ProcessPool, places: memoryview, *, workers: int, deliver: Callable[[Done], None]
    ) -> None:
        self._pool = pool
        self._places = places
        self._workers = workers
        self._deliver = deliver
        self._free = list(range(len(places)))
        self._waiting: deque[Job] = deque()
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()
        self.is_broken = False

    def add(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            self._waiting.extend(jobs)
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._free and not self.is_broken:
            jobs, place = self._take(), self._free.pop()
            self._places[place] = 0
            task = (jobs[0].source, place, [job.pickled_items for job in jobs])
            try:
                future = self._pool.schedule(
                    worker.score, args=task, timeout=max(job.deadline_s for job in jobs) + TURN_S
                )
            except RuntimeError:
                self.is_broken = True
                return
            future.add_done_callback(partial(self._finish, jobs, place))

    def _take(self) -> list[Job]:
        """The jobs of the next task: as many as are quick enough, but leaving some to the other workers."""
        source = self._waiting[0].source
        share = math.ceil(len(self._waiting) / (TASKS_A_WORKER * self._workers))
        size = min(self._sizes.get(source, 1), share)
        jobs: list[Job] = []
        while self._waiting and len(jobs) < size and self._waiting[0].source == source:
            jobs.append(self._waiting.popleft())
        return jobs

    def _finish(self, jobs: list[Job], place: int, future: Future[list[list[Outcome]]]) -> None:
        if future.cancelled():
            return
        with self._lock:
            self._free.append(place)
            error = future.exception()
            if isinstance(error, pebble.ProcessExpired) and error.exitcode == RETIRED:
                self._send_again(jobs)
            elif error is None:
                self._accept(jobs, future.result())
            elif isinstance(error, (TimeoutError, pebble.ProcessExpired)):
                self._blame(jobs, self._places[place], error)
            else:
                self.is_broken = True
            self._hand_out()

    def _accept(self, jobs: list[Job], outcomes: list[list[Outcome]]) -> None:
        """outcomes: of the first jobs, or of all."""
        done = [(job.id, found) for job, found in zip(jobs, outcomes, strict=False)]
        self._deliver(done)
        self._send_again(jobs[len(done) :])
        took_s = sum(outcome.ms for found in outcomes for outcome in found) / 1000
        if len(done) < len(jobs):
            self._sizes[jobs[0].source] = len(done)
        elif took_s < TURN_S / 2:
            self._sizes[jobs[0].source] = min(max(self._sizes.get(jobs[0].source, 1), 2 * len(jobs)), _MOST_JOBS)

    def _blame(self, jobs: list[Job], culprit: int, error: BaseException) -> None:
        job = jobs[culprit]
        spent_ms = job.deadline_s * 1000 if isinstance(error, TimeoutError) else 0.0
        self._deliver([(job.id, [Outcome(error=_reason(error, job), ms=spent_ms / job.size)] * job.size)])
        self._send_again(jobs[:culprit] + jobs[culprit + 1 :])

    def _send_again(self, jobs: Sequence[Job]) -> None:
        self._waiting.extendleft(reversed(jobs))


def _reason(error: BaseException, job: Job) -> str:
    if isinstance(error, TimeoutError):
        return f"it took longer than {job.deadline_s:g} s and was stopped"
    code = getattr(error, "exitcode", None)
    if code == ENDED_WITHOUT_A_CODE:
        return "it ended its process (exit code 0)"
    if isinstance(code, int) and code < 0:
        return f"its process was killed by {signal.Signals(-code).name}"
    return f"it ended its process (exit code {code})"
