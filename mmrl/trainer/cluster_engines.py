"""The engines that a loop drives where they live in workers: policy and sampling in one pool, or in two.

The controller holds no weights: a skeleton of the model tells sizes and makes prompts. Workers begin with the weights
of the config's model or, after a resume, of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from mmrl.cluster.base import Executor
from mmrl.cluster.group import WorkerGroup
from mmrl.cluster.policy.proxies import RemoteActor, RemoteCritic, RemoteReference, RemoteRollout
from mmrl.cluster.policy.roles import PolicyJob
from mmrl.cluster.policy.weight_stream import WeightStream
from mmrl.cluster.policy.worker import PolicyWorker
from mmrl.config import RunConfig
from mmrl.config.critic import CriticConfig
from mmrl.config.placement import RoleName
from mmrl.data.images import ImageStore
from mmrl.engines.rollout_needs import RolloutNeeds, needs_of
from mmrl.models.loading import load_skeleton
from mmrl.runs import layout
from mmrl.trainer.cluster_snapshot import ClusterSnapshots
from mmrl.trainer.engines import EngineNeeds, Engines, SketchMaker
from mmrl.trainer.resume import ResumePoint
from mmrl.trainer.snapshot import SnapshotTaker
from mmrl.trainer.state import Stateful


class ClusterSource:
    """Engines in the pools of `config.placement`."""

    def __init__(
        self,
        config: RunConfig,
        store: ImageStore,
        point: ResumePoint | None,
        *,
        executor: Executor,
        run_dir: Path,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._store = store
        self._point = point
        self._executor = executor
        self._run_dir = run_dir
        self._say = say
        self.policy = load_skeleton(config.model, config.data.image, store=store)

    def open(self, needs: EngineNeeds, stack: ExitStack) -> Engines:
        config, placement = self._config, self._config.placement
        needed: dict[RoleName, bool] = {
            "actor": True,
            "rollout": True,
            "reference": needs.reference,
            "critic": needs.critic,
        }
        roles: dict[str, set[RoleName]] = {}
        for role, is_needed in needed.items():
            if is_needed:
                roles.setdefault(placement.pool_of(role), set()).add(role)
        room = needs_of(needs.samples, self.policy.prompts, config)
        for pool, own in roles.items():
            self._say(f"building {', '.join(sorted(own))} on the workers of pool {pool}")
        groups = {pool: self._group(pool, frozenset(own), needs, room) for pool, own in roles.items()}
        actor, sampling = groups[placement.pool_of("actor")], groups[placement.pool_of("rollout")]
        rollout = RemoteRollout(sampling, tensor_parallel=config.rollout.tensor_parallel, policy_version=self._version)
        sync = Sync(
            actor, sampling, rollout, dtype=_travelling_dtype(config), by_broadcast=placement.broadcasts_weights
        )
        if self._point is not None and config.model.lora is not None:
            sync(self._version)
        return Engines(
            processor=SketchMaker(self.policy.prompts),
            actor=RemoteActor(actor),
            rollout=rollout,
            reference=RemoteReference(groups[placement.pool_of("reference")]) if needs.reference else None,
            critic=self._critic(groups[placement.pool_of("critic")]) if needs.critic else None,
            sync=sync,
            parts={},
            remote_parts=("actor", "critic"),
            snapshots=self.snapshots_of(actor),
        )

    def learner(self, needs: EngineNeeds) -> WorkerGroup:
        """The workers of what is trained, with no other role."""
        pool = self._config.placement.pool_of("actor")
        self._say(f"building actor on the workers of pool {pool}")
        room = needs_of(needs.samples, self.policy.prompts, self._config)
        return self._group(pool, frozenset({"actor"}), needs, room)

    def snapshots_of(self, actor: WorkerGroup) -> Callable[[Mapping[str, Stateful], bytes], SnapshotTaker]:
        return partial(ClusterSnapshots, actor, self.policy, staging=layout.checkpoints_dir(self._run_dir))

    def _group(self, pool: str, roles: frozenset[RoleName], needs: EngineNeeds, room: RolloutNeeds) -> WorkerGroup:
        point, config = self._point, self._config
        job = PolicyJob(
            config=config,
            roles=roles,
            model_folder=Path(config.model.path) if point is None else point.model_folder,
            policy_version=self._version,
            checkpoint=None if point is None else point.folder,
            store_root=self._store.root,
            temperature=needs.temperature,
            needs=room,
        )
        return self._executor.create(pool, PolicyWorker, job, pool=pool)

    def _critic(self, group: WorkerGroup) -> RemoteCritic:
        return RemoteCritic(group, value_clip=(self._config.critic or CriticConfig()).value_clip)

    @property
    def _version(self) -> int:
        return 0 if self._point is None else self._point.step


class Sync:
    """Brings the weights of `actor` to the rollout engine in its own processes, or to that of `sampling` in another
    pool. dtype: of the weights on their way there. by_broadcast: how they go."""

    def __init__(
        self,
        actor: WorkerGroup,
        sampling: WorkerGroup,
        rollout: RemoteRollout,
        *,
        dtype: torch.dtype,
        by_broadcast: bool = False,
    ) -> None:
        self._actor = actor
        self._sampling = sampling
        self._rollout = rollout
        self._dtype = dtype
        self._by_broadcast = by_broadcast

    def __call__(self, version: int) -> None:
        if self._sampling is self._actor:
            self._actor.sync_weights(version)
        else:
            receiving = self._sampling.start("receive_weights", version)
            stream = WeightStream(self._sampling.remote(), self._dtype, self._by_broadcast)
            self._actor.send_weights(stream, version)
            receiving.result()
        self._rollout.policy_version = version


def _travelling_dtype(config: RunConfig) -> torch.dtype:
    """That of the engine, which would round the weights anyway."""
    return torch.bfloat16 if config.model.dtype == "bfloat16" else torch.float32
