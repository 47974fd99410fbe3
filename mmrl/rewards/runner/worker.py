"""What runs inside a worker process of the reward pool.

A worker is forked from the pool's server (`server.py`), moves into a process group of its own, builds the rewards
once, and then scores responses, one job (a response, or a batch) after the other. It must never import torch by
itself: it starts in milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from mmrl.config.reward import RewardConfig
from mmrl.rewards.base import Reward, RewardItem
from mmrl.rewards.function.function import UserFunction
from mmrl.rewards.outcome import Outcome, attempt
from mmrl.rewards.registry import build_reward, preload

RETIRED = 177
"""Exit code of a worker that gives its place up because it has grown; its task was not begun."""

TURN_S = 0.02
"""Seconds after which a worker begins no further job of its task and hands back what it has."""

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl


@dataclass(frozen=True)
class RewardSource:
    """What a worker builds a reward from: a config, or a function passed from Python, as cloudpickle wrote it."""

    config: RewardConfig | None = None
    pickled_function: bytes | None = None
    label: str = ""
    batch: int | None = None

    @classmethod
    def from_function(cls, function: Callable[..., Any], label: str, *, batch: int | None) -> RewardSource:
        """Raises whatever cloudpickle raises where the function cannot be sent."""
        return cls(pickled_function=cloudpickle.dumps(function), label=label, batch=batch)

    def build(self) -> Reward:
        """Raises ConfigError where a user's function does not load."""
        if self.config is not None:
            return build_reward(self.config)
        assert self.pickled_function is not None
        return UserFunction(cloudpickle.loads(self.pickled_function), self.label, batch=self.batch)

    def preload(self) -> None:
        if self.config is not None:
            preload(self.config)


@dataclass
class _State:
    """What a worker process keeps between tasks."""

    pid: int
    rewards: list[Reward | str]
    memory_at_start: int
    memory_limit: int
    places: memoryview
    is_full: bool = False

    @property
    def has_grown(self) -> bool:
        """Whether the process should be replaced."""
        return self.is_full or _memory_used() - self.memory_at_start > (self.memory_limit - self.memory_at_start) / 2


_state: _State | None = None


def start(sources: Sequence[RewardSource], memory_bytes: int, inherited_fds: Iterable[int], places: memoryview) -> None:
    """Run once in each new worker, before its first task. places: shared with the server, see `score`."""
    global _state
    _isolate(inherited_fds)
    rewards = [_build(source) for source in sources]
    _limit_memory(memory_bytes)
    _state = _State(os.getpid(), rewards, _memory_used(), memory_bytes, places)


def load_problems() -> list[str]:
    """Why rewards did not load in this worker, one line each."""
    assert _state is not None
    return [reward for reward in _state.rewards if isinstance(reward, str)]


def score(source: int, task: int, jobs: Sequence[bytes]) -> list[list[Outcome]]:
    """Score jobs with one reward until the turn is over; what came of those that were begun, the first at least.

    Before each, its place among them is written to the task's entry of the shared `places`. A job is a pickled list of
    RewardItems. Leaves the process before it begins where the process has grown too much.
    """
    assert _state is not None
    if _state.has_grown:
        os._exit(RETIRED)
    until = time.monotonic() + TURN_S
    found: list[list[Outcome]] = []
    for place, job in enumerate(jobs):
        if found and (time.monotonic() > until or _state.has_grown):
            break
        _state.places[task] = place
        found.append(_score(_state.rewards[source], pickle.loads(job)))
        if os.getpid() != _state.pid:
            os._exit(0)  # a child that the reward forked has come back here: it must not take part in the pool
        _state.is_full = any(outcome.ran_out_of_memory for outcome in found[-1])
    return found


def _score(reward: Reward | str, items: Sequence[RewardItem]) -> list[Outcome]:
    if isinstance(reward, str):
        return [Outcome(error=reward)] * len(items)
    try:
        return attempt(reward, items)
    except KeyboardInterrupt:
        return [Outcome(error="it raised KeyboardInterrupt")] * len(items)


def _build(source: RewardSource) -> Reward | str:
    try:
        return source.build()
    except BaseException as error:
        return str(error) or type(error).__name__


def _isolate(inherited_fds: Iterable[int]) -> None:
    """A process group of its own, so that whatever the reward forks dies with it; no way to print to the run's
    output; death with the server, even if that is killed."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    for fd in inherited_fds:
        with contextlib.suppress(OSError):
            os.close(fd)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    os.close(nowhere)


def _limit_memory(memory_bytes: int) -> None:
    """Allocations beyond the limit raise MemoryError. Systems that cannot limit data go without."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def _memory_used() -> int:
    """Bytes of memory at the peak of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
