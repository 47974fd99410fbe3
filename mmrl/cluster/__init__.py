"""Where workers live. An executor has pools of workers; a worker group runs one method on all workers of a pool.

    with build_executor(placement, log_dir=folder) as executor:
        scorers = executor.create("scorers", Scorer, threshold=0.5)
        scores = scorers.score(rollouts)

How a call travels on Ray:

    group.score(rollouts)
      dispatch.Plan          the arguments of each worker, how results are joined (`sharding`)
      ray_values             each argument packed once (`packing`); large ones that all take, through shared memory
      ray_host.RayHost       the worker process: finds the worker of the group, runs the method (`host`)
      ray_calls.Watch        waits for all, and ends all for the first that fails (`ray_losses`, `ray_hangs`)

All of this knows nothing of models or algorithms; `policy` is what runs on it.
"""

from __future__ import annotations

from mmrl.cluster.base import Executor, Pending, WorkerContext
from mmrl.cluster.build import build_executor
from mmrl.cluster.dispatch import Dispatch, Plan, dispatch
from mmrl.cluster.group import WorkerGroup
from mmrl.cluster.sharding import Shard

__all__ = [
    "Dispatch",
    "Executor",
    "Pending",
    "Plan",
    "Shard",
    "WorkerContext",
    "WorkerGroup",
    "build_executor",
    "dispatch",
]
