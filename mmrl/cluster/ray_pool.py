"""A pool on Ray: a placement group, and in it one process a worker."""

from __future__ import annotations

import logging
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mmrl import shared_memory
from mmrl.cluster.base import WorkerContext
from mmrl.cluster.host import Setup
from mmrl.cluster.ray_host import Place, start_host
from mmrl.cluster.ray_session import LOCAL, RaySession
from mmrl.cluster.watchdog import is_running, kill_tree, wait_gone
from mmrl.cluster.worker_log import log_path
from mmrl.config.placement import PlacementConfig, PoolConfig
from mmrl.config.secrets import is_secret_key
from mmrl.errors import ConfigError, RunFailedError

_FORWARDED = ("MMRL_HOME", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "NCCL_", "GLOO_", "VLLM_", "TORCH_", "PYTORCH_")
"""Environment variables that workers on other nodes get from the controller, by how their names begin."""
_SMALLEST_SHARE = 0.001
_KILL_PATIENCE_S = 10.0


@dataclass
class RayPool:
    """The processes of a pool by rank. node_id: of the controller's node, where processes can be reached directly.

    port: at which its ranks meet, once that is known.
    """

    name: str
    actors: list[Any]
    places: list[Place]
    contexts: list[WorkerContext]
    log_dir: Path
    node_id: str
    group: PlacementGroup | None = field(default=None, repr=False)
    port: int | None = None

    def is_here(self, rank: int) -> bool:
        return self.places[rank].node_id == self.node_id

    def is_dead(self, rank: int) -> bool:
        """Whether a process of this node has ended; of other nodes Ray tells."""
        return self.is_here(rank) and not is_running(self.places[rank].pid)

    def log(self, rank: int) -> Path:
        return log_path(self.log_dir, self.name, rank)

    def kill(self, *, head_is_there: bool = True) -> None:
        """Ends all processes at once, with whatever they have started."""
        here = [place.pid for rank, place in enumerate(self.places) if self.is_here(rank)]
        for pid in here:
            kill_tree(pid)
        if head_is_there:
            for actor in self.actors:
                ray.kill(actor, no_restart=True)
            if self.group is not None:
                remove_placement_group(self.group)
        wait_gone(here, timeout_s=_KILL_PATIENCE_S)
        if here and self.port is not None:
            shared_memory.remove(self.port)
        self.actors, self.group = [], None


def check_resources(placement: PlacementConfig, session: RaySession) -> None:
    """Raises ConfigError where a Ray of this machine alone has less than the pools ask for."""
    wanted = {
        "GPU": sum(pool.workers * pool.gpus_per_worker for pool in placement.pools.values()),
        "CPU": sum(pool.workers * pool.cpus_per_worker for pool in placement.pools.values()),
    }
    there = ray.cluster_resources()
    for kind, amount in wanted.items():
        if session.is_own and amount > there.get(kind, 0):
            raise ConfigError(
                f"placement.pools: the pools ask for {amount:g} {kind}s ({_listed(placement.pools, kind)}), and this "
                f"machine has {there.get(kind, 0):g}; ask for fewer, or set placement.address to a cluster"
            )


def open_pool(name: str, placement: PlacementConfig, session: RaySession, *, log_dir: Path, start_by: float) -> RayPool:
    """Places and starts the processes of a pool. start_by: the moment of the monotonic clock by which they are there.

    Raises RunFailedError where they are not.
    """
    config = placement.pools[name]
    group = placement_group([_bundle(config)] * config.workers, strategy="PACK", name=f"mmrl-{name}")
    if not group.wait(max(1.0, start_by - time.monotonic())):
        remove_placement_group(group)
        raise RunFailedError(_no_room(name, config, placement))
    actors = [start_host(_options(config, group, index)) for index in range(config.workers)]
    pool = RayPool(name, actors, [], [], log_dir, session.node_id, group)
    try:
        _settle(pool, config, session, start_by=start_by)
    except BaseException:
        pool.kill()
        raise
    return pool


def _settle(pool: RayPool, config: PoolConfig, session: RaySession, *, start_by: float) -> None:
    """Gives each process its rank, and tells it all that it must know before it imports anything."""
    places = _wait([actor.place.remote() for actor in pool.actors], pool.name, start_by)
    order = _rank_order(places)
    pool.actors = [pool.actors[index] for index in order]
    pool.places = [places[index] for index in order]
    session.guard()
    pool.contexts = _contexts(pool.name, pool.places, config)
    address = pool.places[0].address
    (port,) = _wait([pool.actors[0].free_port.remote(address)], pool.name, start_by)
    pool.port = port
    session.tell_watchdog(f"share {port}")
    setups = [
        Setup(
            context,
            _environment(context, pool.contexts, master=(address, port)),
            tuple(os.path.abspath(folder) for folder in sys.path),
            os.getcwd(),
            str(pool.log_dir),
            logging.getLogger("mmrl").getEffectiveLevel(),
        )
        for context in pool.contexts
    ]
    prepared = [actor.prepare.remote(setup) for actor, setup in zip(pool.actors, setups, strict=True)]
    _wait(prepared, pool.name, start_by)


def _wait(refs: list[Any], pool: str, start_by: float) -> list[Any]:
    try:
        return list(ray.get(refs, timeout=max(1.0, start_by - time.monotonic())))
    except ray.exceptions.GetTimeoutError as error:
        raise RunFailedError(
            f"the worker processes of pool {pool!r} did not start within placement.start_s; raise it where nodes or "
            "disks are slow"
        ) from error
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"the worker processes of pool {pool!r} did not start: {error}") from error


def _bundle(config: PoolConfig) -> dict[str, float]:
    bundle = {"CPU": max(config.cpus_per_worker, _SMALLEST_SHARE)}
    return bundle | ({"GPU": config.gpus_per_worker} if config.gpus_per_worker > 0 else {})


def _options(config: PoolConfig, group: PlacementGroup, index: int) -> dict[str, Any]:
    place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
    bundle = _bundle(config)
    return {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0), "scheduling_strategy": place}


def _rank_order(places: list[Place]) -> list[int]:
    """Ranks run node by node, nodes as they first come, and on a node by GPU."""
    nodes = list(dict.fromkeys(place.node_id for place in places))
    return sorted(
        range(len(places)),
        key=lambda index: (nodes.index(places[index].node_id), _gpu_order(places[index]), index),
    )


def _gpu_order(place: Place) -> tuple[int, str]:
    first = place.gpus[0] if place.gpus else ""
    return (int(first), "") if first.isdecimal() else (0, first)


def _contexts(pool: str, places: list[Place], config: PoolConfig) -> list[WorkerContext]:
    on_node: dict[str, int] = {}
    contexts = []
    for rank, place in enumerate(places):
        local_rank = on_node[place.node_id] = on_node.get(place.node_id, -1) + 1
        contexts.append(
            WorkerContext(pool, rank, len(places), local_rank, place.address, config.num_threads, place.gpus)
        )
    return contexts


def _environment(context: WorkerContext, pool: list[WorkerContext], *, master: tuple[str, int]) -> dict[str, str]:
    forwarded = {
        name: value for name, value in os.environ.items() if name.startswith(_FORWARDED) and not is_secret_key(name)
    }
    threads = str(context.num_threads)
    is_alone = context.node == LOCAL and sys.platform == "linux"
    local = {"GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": LOCAL} if is_alone else {}
    return {
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        **local,
        **forwarded,
        "RANK": str(context.rank),
        "WORLD_SIZE": str(context.num_workers),
        # Ray shows each process its own GPUs only, so its device is the first that it sees.
        "LOCAL_RANK": "0" if context.gpus else str(context.local_rank),
        "LOCAL_WORLD_SIZE": str(sum(other.node == context.node for other in pool)),
        "MASTER_ADDR": master[0],
        "MASTER_PORT": str(master[1]),
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
    }


def _no_room(name: str, config: PoolConfig, placement: PlacementConfig) -> str:
    there, free = ray.cluster_resources(), ray.available_resources()
    asked = f"{config.workers} x {config.gpus_per_worker:g} GPU and {config.cpus_per_worker:g} CPU"
    return (
        f"pool {name!r} asks for {asked}, and found no place on the Ray cluster within placement.start_s "
        f"({placement.start_s:g} s); the cluster has {there.get('GPU', 0):g} GPU and {there.get('CPU', 0):g} CPU, of "
        f"which {free.get('GPU', 0):g} and {free.get('CPU', 0):g} are free"
    )


def _listed(pools: Mapping[str, PoolConfig], kind: str) -> str:
    share = "gpus_per_worker" if kind == "GPU" else "cpus_per_worker"
    return ", ".join(f"{name}: {pool.workers} x {getattr(pool, share):g}" for name, pool in pools.items())


def num_cpus(placement: PlacementConfig) -> int:
    """How many CPUs a Ray for this run alone says it has: as many as its pools ask for, whatever the machine has."""
    return math.ceil(sum(pool.workers * _bundle(pool)["CPU"] for pool in placement.pools.values()))
