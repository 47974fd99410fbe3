"""What an executor is. `inline` and `ray` meet it, and pass one conformance test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mmrl.cluster.group import WorkerGroup


@dataclass(frozen=True)
class WorkerContext:
    """What a worker knows of its place. The first argument of a worker class's constructor.

    rank, num_workers: its place in the pool, contiguous on each node. local_rank: its place on its node. node: the
    node's address. num_threads: threads for numbers. gpus: the ids of its GPUs as the node counts them; it sees only
    these, as cuda:0, cuda:1 ….
    """

    pool: str
    rank: int = 0
    num_workers: int = 1
    local_rank: int = 0
    node: str = "127.0.0.1"
    num_threads: int = 1
    gpus: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"rank {self.rank} of pool {self.pool!r}"


class Pending(Protocol):
    """A call under way."""

    def done(self) -> bool:
        """Whether every worker has answered."""
        ...

    def result(self, timeout_s: float | None = None) -> Any:
        """Waits for the joined result.

        Raises what a worker raised, RunFailedError for a worker that died or is past its deadline, and TimeoutError
        where the result is not there within `timeout_s`; the call then goes on.
        """
        ...


class Executor(Protocol):
    """Where workers live. A context manager that closes itself."""

    @property
    def pools(self) -> Mapping[str, int]:
        """The number of workers of each pool."""
        ...

    def create(self, name: str, worker_class: type, *args: Any, pool: str | None = None, **kwargs: Any) -> WorkerGroup:
        """Constructs `worker_class(context, *args, **kwargs)` on every worker of the pool (of the first if not given).

        Several groups in a pool share its processes. Groups have names of their own. Raises as a call does.
        """
        ...

    def put(self, value: Any) -> Any:
        """A reference that stands for `value` as an argument of calls, by itself and not inside another value.

        The value is kept once a node, and workers read it in place: tensors and arrays of it are not to be written to.
        """
        ...

    def close(self) -> None:
        """Ends all workers, after the `close` of those that have one. Nothing is left behind; again does nothing."""
        ...

    def __enter__(self) -> Executor: ...

    def __exit__(self, *exc: object) -> None: ...
