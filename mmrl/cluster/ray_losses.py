"""A worker process that ended by itself or was killed: the error that says so."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ray

from mmrl.cluster.failures import Failure
from mmrl.cluster.ray_pool import RayPool
from mmrl.cluster.worker_log import last_lines
from mmrl.errors import RunFailedError

_FATAL = re.compile(r"^Fatal Python error: (.+)$", re.MULTILINE)
_LONGEST_LINE = 300
_SHOWN_LINES = 20
_EXIT_CODE = re.compile(r"exit code (\d+)")


@dataclass(frozen=True)
class Loss:
    """A worker that is gone. error: what Ray says of it, None where it has not noticed yet."""

    call: str
    rank: int
    pool: RayPool
    error: Any


def loss_error(loss: Loss, failures: Sequence[Failure] = ()) -> RunFailedError:
    """Names the worker, how it ended and its last words. failures: what its siblings said to it."""
    place, log = loss.pool.places[loss.rank], loss.pool.log(loss.rank)
    lines = last_lines(log, 200)
    parts = [
        f"rank {loss.rank} of pool {loss.pool.name!r} (pid {place.pid} on {place.address}) died in {loss.call}: "
        f"{_how(loss.error, lines)}"
    ]
    parts += [f"then {failure.where} raised {failure.kind}: {_first_line(failure.message)}" for failure in failures]
    said = [f"    {line[:_LONGEST_LINE]}" for line in lines[-_SHOWN_LINES:]] or ["    (nothing)"]
    return RunFailedError("\n".join([*parts, f"the last that it wrote ({log}):", *said]))


def _how(error: Any, lines: Sequence[str]) -> str:
    fatal = _FATAL.search("\n".join(lines))
    if fatal is not None:
        return f"it crashed with {fatal[1]}"
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return "Ray ended it, since its node was running out of memory"
    if isinstance(error, ray.exceptions.NodeDiedError):
        return "its node is gone"
    code = _EXIT_CODE.search(str(error))
    if code is not None and code[1] != "0":
        return f"it left with exit code {code[1]}"
    return (
        "it was killed from outside (SIGKILL, as the system does when memory runs out), or left without a word "
        "(os._exit)"
    )


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
