"""The executor `ray`: worker processes on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray

from mmrl.cluster.dispatch import Plan
from mmrl.cluster.group import WorkerGroup, callable_methods, check_group
from mmrl.cluster.ray_calls import RayCalls, Watch
from mmrl.cluster.ray_pool import RayPool, check_resources, num_cpus, open_pool
from mmrl.cluster.ray_start import open_session
from mmrl.cluster.ray_values import put
from mmrl.config.placement import PlacementConfig
from mmrl.errors import MmrlError, RunFailedError

_CLOSE_S = 10.0


class RayExecutor:
    """All pools of a placement, from its construction until `close`, or until a failure that closes it.

    log_dir: where the workers' logs go, `worker-POOL-RANK.log` each; None keeps them no longer than the executor.
    Raises ConfigError where the machine or the cluster has not what is asked for, RunFailedError where processes do not
    start.
    """

    def __init__(
        self, placement: PlacementConfig, *, log_dir: Path | None, say: Callable[[str], None] | None = None
    ) -> None:
        start = time.monotonic()
        self._placement = placement
        self._groups: dict[str, WorkerGroup] = {}
        self._own_log_dir = None if log_dir is not None else tempfile.TemporaryDirectory(prefix="mmrl-logs-")
        self._log_dir = Path(log_dir.absolute() if log_dir is not None else self._own_log_dir.name)  # type: ignore[union-attr]
        self._session = open_session(placement, num_cpus=num_cpus(placement))
        self._pools: dict[str, RayPool] = {}
        self._watch = Watch(self._session, self._end_all)
        try:
            check_resources(placement, self._session)
            for name in placement.pools:
                self._pools[name] = open_pool(
                    name, placement, self._session, log_dir=self._log_dir, start_by=start + placement.start_s
                )
        except BaseException:
            self._end_all()
            raise
        if say is not None:
            say(self._opening(time.monotonic() - start))

    @property
    def pools(self) -> Mapping[str, int]:
        return {name: pool.workers for name, pool in self._placement.pools.items()}

    def create(self, name: str, worker_class: type, *args: Any, pool: str | None = None, **kwargs: Any) -> WorkerGroup:
        self._watch.check_open(name)
        place = self._pools[check_group(name, self._groups, pool, self.pools)]
        callable_methods(worker_class)
        placement = self._placement
        calls = RayCalls(
            name,
            worker_class,
            place,
            self._watch,
            deadline_s=placement.deadline_s,
            build_s=max(placement.deadline_s, placement.start_s),
        )
        num_workers = self.pools[place.name]
        calls.build(Plan([((worker_class, *args), kwargs)] * num_workers, lambda results: None)).result()
        self._groups[name] = WorkerGroup(name, worker_class, num_workers, calls)
        return self._groups[name]

    def put(self, value: Any) -> Any:
        self._watch.check_open("put")
        return put(value)

    def close(self) -> None:
        if self._watch.closed or self._watch.ended_by is not None:
            return
        with contextlib.suppress(MmrlError):
            self._session.check()
            self._close_workers()
        self._end_all()

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is None:
            self.close()
        else:
            self._end_all()

    def _close_workers(self) -> None:
        closing = [actor.close.remote() for pool in self._pools.values() for actor in pool.actors]
        ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)

    def _end_all(self, cause: MmrlError | None = None) -> None:
        """Kills all workers and leaves Ray. Again does nothing."""
        if self._watch.closed:
            return
        self._watch.closed = True
        head_is_there = True
        try:
            self._session.check(now=True)
        except RunFailedError:
            head_is_there = False
        for pool in self._pools.values():
            with contextlib.suppress(Exception):
                pool.kill(head_is_there=head_is_there)
        self._session.close()
        if self._own_log_dir is not None:
            self._own_log_dir.cleanup()

    def _opening(self, seconds: float) -> str:
        where = "a Ray of its own" if self._session.is_own else f"the Ray cluster at {self._session.address}"
        pools = ", ".join(f"{name}: {count}" for name, count in self.pools.items())
        return f"workers in pools {pools}, on {where}, ready after {seconds:.1f} s; their logs: {self._log_dir}"
