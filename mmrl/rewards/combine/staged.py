"""Combinations that hold a service (`gate` over a judge, say), scored stage by stage.

A judge inside a gate must be asked beside the others and not one response at a time, and `math` beside it still belongs
into the pool. So the combination first runs over all responses with inner rewards that know nothing; what it asks of
each of them is scored in one go, by a runner of that reward alone; then it runs again on those, until all are scored.
A gate never asks for what it does not pay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mmrl.config.reward import RewardBase
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.combine.inner import Build
from mmrl.rewards.model.service import Asked, Service, Waiting
from mmrl.rewards.outcome import Outcome, outcome_from

if TYPE_CHECKING:
    from mmrl.rewards.runner.runner import RewardRunner


class _NotYet(Exception):
    """An inner reward was asked for something that it does not know yet."""


class StagedReward(Service):
    """combine: makes the combination from what builds its inner rewards. new_runner: makes a runner of one of these."""

    def __init__(self, combine: Callable[[Build], Reward], new_runner: Callable[[Any], RewardRunner]) -> None:
        self._inner: list[_Awaited] = []

        def build(inner: RewardBase) -> Reward:
            self._inner.append(_Awaited(new_runner(inner)))
            return self._inner[-1]

        self._combination = combine(build)
        self._waiting = Waiting(None, self._send)
        self._thread: ThreadPoolExecutor | None = None

    def submit(self, items: Sequence[RewardItem]) -> list[Future[Outcome]]:
        return self._waiting.add(items)

    def flush(self) -> None:
        self._waiting.flush()

    def close(self) -> None:
        self._waiting.cancel()
        for inner in self._inner:
            inner.close()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
            for inner in self._inner:
                inner.close()

    def _send(self, waiting: Sequence[Asked]) -> None:
        self._thread = self._thread or ThreadPoolExecutor(1)
        self._thread.submit(self._score_all, waiting)

    def _score_all(self, waiting: Sequence[Asked]) -> None:
        try:
            while waiting:
                waiting = [pair for pair in waiting if not self._settle(*pair)]
                for inner in self._inner:
                    inner.fetch()
        except BaseException as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
        finally:
            for inner in self._inner:
                inner.forget()

    def _settle(self, item: RewardItem, future: Future[Outcome]) -> bool:
        """Whether all was known that the combination asked for."""
        try:
            score: Score | RewardFailure = self._combination.score(item)
        except _NotYet:
            return False
        except RewardFailure as failure:
            score = failure
        future.set_result(outcome_from(score, ms=sum(inner.ms(item) for inner in self._inner)))
        return True


class _Awaited(Reward):
    """An inner reward that notes what it is asked, and knows it once it was fetched. Responses are told apart by
    identity."""

    def __init__(self, runner: RewardRunner) -> None:
        self._runner = runner
        self._known: dict[int, Outcome] = {}
        self._wanted: dict[int, RewardItem] = {}

    def score(self, item: RewardItem) -> Score:
        outcome = self._known.get(id(item))
        if outcome is None:
            self._wanted[id(item)] = item
            raise _NotYet
        if outcome.error is not None:
            raise RewardFailure(outcome.error)
        return Score(outcome.value, outcome.extracted, outcome.explanation, outcome.extras)

    def fetch(self) -> None:
        items = list(self._wanted.values())
        self._wanted = {}
        self._known |= zip(map(id, items), self._runner.score_alone(items), strict=True)

    def ms(self, item: RewardItem) -> float:
        outcome = self._known.get(id(item))
        return 0.0 if outcome is None else outcome.ms

    def forget(self) -> None:
        self._known, self._wanted = {}, {}

    def close(self) -> None:
        self._runner.close()
