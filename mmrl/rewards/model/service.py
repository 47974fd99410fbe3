"""Rewards that are scored elsewhere: by a server over HTTP, or by a model in a process of its own.

The runner hands them responses as these come in and goes on; each response has a future of its `Outcome`.
`ServiceStream` is to them what `mmrl.rewards.runner.stream.JobStream` is to the pool.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Protocol

from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.outcome import Outcome


class Service(Reward):
    """Scores many responses at once, elsewhere. Building one only checks its config."""

    def open(self) -> None:
        """Start what is slow to start, so that it fails before a run begins. Called by the runner.

        Raises:
            MmrlError: it does not start.
        """
        return

    @abstractmethod
    def submit(self, items: Sequence[RewardItem]) -> list[Future[Outcome]]:
        """Take responses on, without waiting: one future each."""

    def flush(self) -> None:
        """No more responses will come for now: do not wait to fill a batch."""
        return

    def close(self) -> None:
        """End what was started. It starts again when it is next needed."""
        return

    def score(self, item: RewardItem) -> Score:
        """One response by itself, waited for."""
        (future,) = self.submit([item])
        self.flush()
        outcome = outcome_of(future)
        if outcome.error is not None:
            raise RewardFailure(outcome.error)
        return Score(outcome.value, outcome.extracted, outcome.explanation, outcome.extras)


Asked = tuple[RewardItem, Future[Outcome]]
"""A response, and where its outcome goes."""


class Waiting:
    """Responses that wait until they fill a batch, or until no more come. batch: None waits for the latter alone."""

    def __init__(self, batch: int | None, send: Callable[[list[Asked]], object]) -> None:
        self._batch = batch
        self._send = send
        self._asked: list[Asked] = []

    def add(self, items: Sequence[RewardItem]) -> list[Future[Outcome]]:
        futures: list[Future[Outcome]] = [Future() for _ in items]
        self._asked += zip(items, futures, strict=True)
        while self._batch is not None and len(self._asked) >= self._batch:
            full, self._asked = self._asked[: self._batch], self._asked[self._batch :]
            self._send(full)
        return futures

    def flush(self) -> None:
        asked, self._asked = self._asked, []
        if asked:
            self._send(asked)

    def cancel(self) -> None:
        for _, future in self._asked:
            future.cancel()
        self._asked = []


class Stream(Protocol):
    """What takes responses on as they come in, and in the end has an outcome of each for each of its rewards."""

    def add(self, items: Sequence[RewardItem]) -> None: ...

    def flush(self) -> None: ...

    def collect(self) -> list[list[Outcome]]: ...


class ServiceStream:
    """Responses on their way through services; one lane a service, each in the order in which responses were added."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services
        self._futures: list[list[Future[Outcome]]] = [[] for _ in services]

    def add(self, items: Sequence[RewardItem]) -> None:
        for service, futures in zip(self._services, self._futures, strict=True):
            futures += service.submit(items)

    def flush(self) -> None:
        for service in self._services:
            service.flush()

    def collect(self) -> list[list[Outcome]]:
        """Once flushed: the outcomes of every response, in order, for each service."""
        return [[outcome_of(future) for future in futures] for futures in self._futures]


class JoinedStream:
    """Several streams that take the same responses, their rewards one after the other."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self._streams = streams

    def add(self, items: Sequence[RewardItem]) -> None:
        for stream in self._streams:
            stream.add(items)

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()

    def collect(self) -> list[list[Outcome]]:
        return [outcomes for stream in self._streams for outcomes in stream.collect()]


def outcome_of(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except CancelledError:
        return Outcome(error="the run closed its rewards before it was scored")
    except Exception as error:
        return Outcome(error=f"{type(error).__name__}: {error}")
