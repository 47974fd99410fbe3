"""Calls under way on Ray, and the one place that waits for them.

Whoever waits for one call watches all: the first worker that raises, dies or is past its deadline, in whichever group,
ends the waiting. Its siblings may wait for it in a collective for ever, so they are killed, not asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from mmrl.cluster.base import Pending
from mmrl.cluster.dispatch import MethodMark, Plan
from mmrl.cluster.failures import Failure, error_of
from mmrl.cluster.group import logger
from mmrl.cluster.packing import unpack
from mmrl.cluster.ray_hangs import hang_error
from mmrl.cluster.ray_losses import Loss, loss_error
from mmrl.cluster.ray_pool import RayPool
from mmrl.cluster.ray_remote import RemoteWorkers
from mmrl.cluster.ray_session import RaySession
from mmrl.cluster.ray_values import messages_of
from mmrl.errors import MmrlError, RunFailedError

_TICK_S = 0.5
_GRACE_S = 1.0
"""How long others may take to say what happened to them, once one has failed: the cause may come after its effect."""
_GRACE_LOOK_S = 0.02


@dataclass(eq=False)
class RayCall:
    """A call on the workers of a pool. waiting: what each rank that has not answered will answer in."""

    group: str
    method: str
    pool: RayPool
    join: Callable[[list[Any]], Any]
    waiting: dict[int, Any]
    deadline_s: float
    watch: Watch
    answers: dict[int, Any] = field(default_factory=dict)
    error: MmrlError | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        return f"{self.group}.{self.method}"

    def done(self) -> bool:
        self.watch.look(0)
        return not self.waiting

    def result(self, timeout_s: float | None = None) -> Any:
        self.watch.wait_for(self, timeout_s)
        if self.error is not None:
            raise self.error
        try:
            return self.join([self.answers[rank] for rank in sorted(self.answers)])
        except ValueError as error:
            raise RunFailedError(f"{self.name}: {error}") from error

    def take(self, rank: int, answer: Any) -> None:
        del self.waiting[rank]
        self.answers[rank] = answer
        if not self.waiting:
            seconds = time.monotonic() - self.started
            logger.debug("%s on %d workers of %s took %.3f s", self.name, len(self.answers), self.pool.name, seconds)


_Trouble = tuple[RayCall, Failure | Loss]


class Watch:
    """All calls under way. on_end: ends everything, given the error that is the reason."""

    def __init__(self, session: RaySession, on_end: Callable[[MmrlError], None]) -> None:
        self._session = session
        self._on_end = on_end
        self._calls: list[RayCall] = []
        self._lock = threading.RLock()
        self.pools: list[RayPool] = []
        self.ended_by: MmrlError | None = None
        self.closed = False

    def add(self, call: RayCall) -> None:
        with self._lock:
            self._calls.append(call)

    def check_open(self, what: str) -> None:
        """Raises RunFailedError once the executor is closed, with the failure that closed it."""
        if self.ended_by is not None:
            raise RunFailedError(f"{what} cannot be called: the workers have been ended, since {self.ended_by}")
        if self.closed:
            raise RunFailedError(f"{what} was called on an executor that is closed")

    def wait_for(self, call: RayCall, timeout_s: float | None = None) -> None:
        """Until every worker of the call has answered. Raises whatever ends the run, TimeoutError past `timeout_s`."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while call.waiting:
            self.check_open(call.name)
            left = _TICK_S if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{call.name} has not ended after {timeout_s:g} s; it goes on")
            self.look(min(left, _TICK_S))

    def look(self, wait_s: float) -> None:
        """Takes what has been answered, waiting `wait_s` for the next answer where there is none yet."""
        with self._lock:
            waiting = list(self._waiting())
        if waiting and wait_s > 0:  # other threads may start calls meanwhile
            ray.wait(waiting, num_returns=1, timeout=wait_s, fetch_local=False)
        with self._lock:
            if self.ended_by is not None or self.closed:
                return
            try:
                troubles = self._take_answers()
                if troubles:
                    self._fail(troubles)
                self._session.check()
                self._check_deadlines()
            except MmrlError as error:
                self._end(error)
                raise
            self._calls = [call for call in self._calls if call.waiting]

    def _take_answers(self) -> list[_Trouble]:
        """Takes what is there. The calls that came back with trouble, a call for each worker that did."""
        waiting = self._waiting()
        if not waiting:
            return []
        ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0, fetch_local=False)
        troubles = [(waiting[ref][0], self._take(ref, *waiting[ref])) for ref in ready]
        return [(call, trouble) for call, trouble in troubles if trouble is not None]

    def _waiting(self) -> dict[Any, tuple[RayCall, int]]:
        return {ref: (call, rank) for call in self._calls for rank, ref in call.waiting.items()}

    def _take(self, ref: Any, call: RayCall, rank: int) -> Failure | Loss | None:
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayError as error:
            return Loss(call.name, rank, call.pool, error)
        if isinstance(answer, Failure):
            call.take(rank, None)
            return answer
        call.take(rank, unpack(answer))
        return None

    def _fail(self, first: list[_Trouble]) -> None:
        """Raises the cause, unless workers told all troubles on purpose and none of their siblings is left waiting:
        then these calls alone have failed, and the workers are as good as before."""
        troubles = self._gather(first)
        losses = [trouble for _, trouble in troubles if isinstance(trouble, Loss)]
        failed = [(call, trouble) for call, trouble in troubles if isinstance(trouble, Failure)]
        failed.sort(key=lambda one: one[1].time_s)
        if losses:
            raise loss_error(losses[0], [failure for _, failure in failed])
        if any(failure.pickled is None or call.waiting for call, failure in failed):
            raise error_of(failed[0][1])
        for call, failure in failed:
            call.error = call.error or error_of(failure)

    def _gather(self, first: list[_Trouble]) -> list[_Trouble]:
        troubles = list(first)
        end = time.monotonic() + _GRACE_S
        while time.monotonic() < end and not any(isinstance(trouble, Loss) for _, trouble in troubles):
            lost = self._dead()
            if lost is not None:
                troubles.append(lost)
            elif not any(call.waiting for call, _ in troubles):
                break
            else:
                troubles += self._take_answers()
                time.sleep(_GRACE_LOOK_S)
        return troubles

    def _dead(self) -> _Trouble | None:
        """A process that has ended while it had a call, which Ray may not have noticed yet."""
        for call in self._calls:
            for rank in call.waiting:
                if call.pool.is_dead(rank):
                    return call, Loss(call.name, rank, call.pool, None)
        return None

    def _check_deadlines(self) -> None:
        for call in self._calls:
            if call.waiting and time.monotonic() - call.started > call.deadline_s:
                raise hang_error(call.name, call.pool, sorted(call.waiting), deadline_s=call.deadline_s)

    def _end(self, error: MmrlError) -> None:
        self.ended_by = error
        self._calls.clear()
        self._on_end(error)


class RayCalls:
    """How the group `name` in `pool` is called."""

    def __init__(
        self, name: str, worker_class: type, pool: RayPool, watch: Watch, *, deadline_s: float, build_s: float
    ) -> None:
        self._name = name
        self._class = worker_class
        self._pool = pool
        self._watch = watch
        self._deadline_s = deadline_s
        self._build_s = build_s

    def start(self, method: str, mark: MethodMark, plan: Plan, *, deadline_s: float | None) -> Pending:
        def send(actor: Any, layout: Any, items: Sequence[Any]) -> Any:
            remote = actor.call_concurrently if mark.concurrent else actor.call
            return remote.remote(self._name, method, layout, *items)

        return self._send(method, plan, send, deadline_s=deadline_s)

    def build(self, plan: Plan) -> Pending:
        """Constructs the workers; the first argument of each call of the plan is the class."""

        def send(actor: Any, layout: Any, items: Sequence[Any]) -> Any:
            return actor.build.remote(self._name, layout, *items)

        return self._send("__init__", plan, send, deadline_s=self._build_s)

    def remote(self) -> RemoteWorkers:
        ranks = tuple(range(len(self._pool.actors)))
        return RemoteWorkers(self._name, self._class, self._pool.name, tuple(self._pool.actors), ranks)

    def _send(self, method: str, plan: Plan, send: Callable[..., Any], *, deadline_s: float | None) -> RayCall:
        self._watch.check_open(f"{self._name}.{method}")
        started = time.monotonic()
        waiting = {
            rank: send(self._pool.actors[rank], *message)
            for rank, message in enumerate(messages_of(plan))
            if message is not None
        }
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        call = RayCall(self._name, method, self._pool, plan.join, waiting, limit_s, self._watch, started=started)
        self._watch.add(call)
        return call
