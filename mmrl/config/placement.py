"""`PlacementConfig`: which processes a run has, and which of its roles live in which of them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel

RoleName = Literal["actor", "rollout", "reference", "critic"]

_POOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


class PoolConfig(ConfigModel):
    """Processes of one kind. All roles of a pool share them."""

    workers: int = Field(1, ge=1)
    """Processes in the pool."""
    gpus_per_worker: float = Field(0, ge=0)
    """GPUs of each; below 1 several processes share one."""
    cpus_per_worker: float = Field(1, ge=0)
    """CPU cores that each counts for where they are shared out. A Ray started for the run has as many as its pools ask
    for; on a running cluster they must be free."""
    threads: int | None = Field(None, ge=1)
    """Threads of each process for numbers (OMP_NUM_THREADS); null is cpus_per_worker, at least 1."""

    @model_validator(mode="after")
    def _whole_above_one(self) -> PoolConfig:
        for name in ("gpus_per_worker", "cpus_per_worker"):
            value = getattr(self, name)
            if value > 1 and not float(value).is_integer():
                raise ValueError(f"{name}: above 1 it is a whole number (got {value:g}); below 1 several share one")
        return self

    @property
    def num_threads(self) -> int:
        return self.threads or max(1, int(self.cpus_per_worker))


class PlacementConfig(ConfigModel):
    """Where the parts of a run live."""

    executor: Literal["inline", "ray"] = "inline"
    """inline runs everything in the process of the trainer; ray has worker processes, on one machine or a cluster."""
    pools: dict[str, PoolConfig] = {"main": PoolConfig()}
    """Groups of processes by name."""
    roles: dict[RoleName, str] = {}
    """The pool of each role. One that is not named is in the pool of actor, and actor in the first pool. All in one
    pool is colocated; rollout in a pool of its own is separate."""
    address: str | None = None
    """Null starts a Ray for the run alone, on this machine. Else the running cluster whose head is at HOST:PORT, of
    which this machine must be a part; auto finds the one that it is a part of."""
    start_s: float = Field(300, gt=0)
    """Longest that Ray, the places for the workers and their processes may take to be there, and, where it is more than
    deadline_s, that the parts of a worker may take to be built."""
    deadline_s: float = Field(3600, gt=0)
    """Longest that one call on a worker may take. Past it the run ends, with what each worker was doing."""
    object_store_mb: int | None = Field(None, ge=80)
    """Shared memory for data between processes of a Ray started for the run, in MiB; null takes 30 % of the memory."""

    weight_transfer: Literal["auto", "object_store", "broadcast"] = "auto"
    """How new weights reach a rollout engine in another pool than the actor's: broadcast is one group over both pools,
    NCCL from GPU to GPU and gloo between CPUs; object_store goes through Ray's shared memory. auto broadcasts where
    every worker of both pools has a GPU of its own."""

    @property
    def broadcasts_weights(self) -> bool:
        """Only where actor and rollout are in two pools."""
        pools = [self.pools[self.pool_of(role)] for role in ("actor", "rollout")]
        own_gpu = all(pool.gpus_per_worker >= 1 for pool in pools)
        return self.weight_transfer == "broadcast" or (self.weight_transfer == "auto" and own_gpu)

    def pool_of(self, role: RoleName) -> str:
        """The pool in which a role lives."""
        return self.roles.get(role) or self.roles.get("actor") or next(iter(self.pools))

    @model_validator(mode="after")
    def _fits_together(self) -> PlacementConfig:
        if not self.pools:
            raise ValueError("pools: is empty; name one, such as pools: {main: {workers: 2}}")
        for name in self.pools:
            if not _POOL_NAME.fullmatch(name):
                raise ValueError(
                    f"pools: {name!r} is no name for a pool; it begins with a letter and has up to 32 letters, digits, "
                    "'-' and '_', since log files are named after it"
                )
        for role, pool in self.roles.items():
            check_pool(pool, self.pools, key=f"roles.{role}")
        self._check_executor()
        self._check_weight_transfer()
        return self

    def _check_weight_transfer(self) -> None:
        if self.weight_transfer == "auto":
            return
        actor, rollout = self.pool_of("actor"), self.pool_of("rollout")
        if actor == rollout:
            raise ValueError(
                f"weight_transfer: '{self.weight_transfer}' is a way between two pools, and actor and rollout are both "
                f"in pool '{actor}', where weights are handed over within each process; leave it out, or set "
                "roles.rollout to a pool of its own"
            )
        shared = [name for name in (actor, rollout) if 0 < self.pools[name].gpus_per_worker < 1]
        if self.weight_transfer == "broadcast" and shared:
            raise ValueError(
                f"weight_transfer: NCCL cannot broadcast to workers that share a GPU, as in pool '{shared[0]}' "
                f"(gpus_per_worker {self.pools[shared[0]].gpus_per_worker:g}); set object_store, or 1 GPU a worker"
            )
        gpus = [self.pools[name].gpus_per_worker for name in (actor, rollout)]
        if self.weight_transfer == "broadcast" and (gpus[0] == 0) != (gpus[1] == 0):
            raise ValueError(
                f"weight_transfer: one group cannot broadcast between GPUs and CPUs (gpus_per_worker {gpus[0]:g} in "
                f"pool '{actor}', {gpus[1]:g} in pool '{rollout}'); set object_store, or GPUs in both pools or in none"
            )

    def _check_executor(self) -> None:
        if self.executor == "ray":
            if self.address is not None and self.address.startswith("ray://"):
                raise ValueError(
                    f"address: {self.address!r} is that of a Ray client server, through which shared memory cannot be "
                    "reached; start the run on a machine of the cluster with address: auto, or give HOST:PORT of its "
                    "head"
                )
            return
        num_workers = sum(pool.workers for pool in self.pools.values())
        if len(self.pools) > 1 or num_workers > 1:
            listed = ", ".join(f"{name}: {pool.workers}" for name, pool in self.pools.items())
            raise ValueError(
                f"pools: executor 'inline' is one worker in the process of the trainer (got workers {listed}); set "
                "placement.executor: ray, or leave one pool of one worker"
            )
        if self.address is not None:
            raise ValueError(
                f"address: {self.address!r} is for executor 'ray', and executor is 'inline'; set placement.executor: "
                "ray, or leave address out"
            )


def check_pool(name: str, pools: dict[str, PoolConfig], *, key: str) -> None:
    """Raises ValueError naming the nearest pool where there is none of that name."""
    if name not in pools:
        near = get_close_matches(name, pools, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"pools: {', '.join(pools)}"
        raise ValueError(f"{key}: there is no pool {name!r}; {hint}")
