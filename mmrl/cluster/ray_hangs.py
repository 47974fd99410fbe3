"""A call past its deadline: what each worker was doing."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

import ray

from mmrl.cluster.host import Stacks
from mmrl.cluster.ray_pool import RayPool
from mmrl.cluster.worker_log import STACKS_SIGNAL, last_lines
from mmrl.errors import RunFailedError

_ANSWER_S = 5.0
_WRITE_S = 0.5
_MOST_LINES = 200
_FIRST_OF_STACKS = re.compile(r"^(Thread|Current thread) 0x")


def hang_error(call: str, pool: RayPool, ranks: Sequence[int], *, deadline_s: float) -> RunFailedError:
    """The error, with the Python stacks of those that have not answered; those of all threads go to a file."""
    stacks = _stacks_of(pool, ranks)
    file = pool.log_dir / f"hang-{call.replace('.', '-')}.txt"
    whole = "\n\n".join(f"rank {rank} (pid {pool.places[rank].pid}):\n{stacks[rank]}" for rank in ranks)
    where = ""
    with contextlib.suppress(OSError):
        file.write_text(f"{whole}\n")
        where = f"; all threads are in {file}"
    who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    busy = "\n".join(f"rank {rank}, {_busy(stacks[rank])}" for rank in ranks)
    return RunFailedError(
        f"{call} did not end within its deadline of {deadline_s:g} s on {who} of pool {pool.name!r}{where}. Raise "
        f"placement.deadline_s if it only needs longer. What they were doing:\n{busy}"
    )


def _stacks_of(pool: RayPool, ranks: Sequence[int]) -> dict[int, Stacks | str]:
    asked = {pool.actors[rank].stacks.remote(): rank for rank in ranks}
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=_ANSWER_S)
    found: dict[int, Stacks | str] = {}
    for ref in ready:
        with contextlib.suppress(ray.exceptions.RayError):
            found[asked[ref]] = ray.get(ref)
    for rank in ranks:
        if rank not in found:
            found[rank] = _written_stacks(pool, rank)
    return found


def _written_stacks(pool: RayPool, rank: int) -> str:
    """Of a process that compiled code holds: by a signal, into its log."""
    if not pool.is_here(rank):
        return "it does not answer, and is on another node; its log may tell"
    with contextlib.suppress(OSError):
        os.kill(pool.places[rank].pid, STACKS_SIGNAL)
    time.sleep(_WRITE_S)
    lines = last_lines(pool.log(rank), _MOST_LINES)
    first = next((place for place, line in enumerate(lines) if _FIRST_OF_STACKS.match(line)), len(lines))
    return "\n".join(["held by compiled code", *lines[first:]])


def _busy(stacks: Any) -> str:
    return "\n".join(stacks.busy or ("idle",)) if isinstance(stacks, Stacks) else str(stacks)
