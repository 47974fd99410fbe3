"""What lives in a worker's process: the roles of the run that its pool holds, built from the config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.checkpoint_files import ADAPTER_FOLDER
from mmrl.cluster.base import WorkerContext
from mmrl.config import RunConfig
from mmrl.config.placement import RoleName
from mmrl.data.images import ImageStore
from mmrl.engines.actor import HfActor
from mmrl.engines.base import RolloutEngine
from mmrl.engines.critic import HfCritic, check_reads_alike, critic_settings
from mmrl.engines.reference import AdapterOffReference, Reference
from mmrl.engines.reward_trainer import HfRewardTrainer
from mmrl.engines.rollout_hf import HfRollout
from mmrl.engines.rollout_needs import RolloutNeeds
from mmrl.engines.shard_checkpoint import load_sharded_parts
from mmrl.engines.shard_loading import load_sharded_policy, load_sharded_reward_model, load_sharded_value_model
from mmrl.engines.sharding import Ranks, init_ranks
from mmrl.models.loading import device_of, load_prompts
from mmrl.models.lora import add_adapter, load_adapter
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.models.processing import PromptProcessor
from mmrl.models.reward_model import RewardModel, load_reward_model
from mmrl.models.value_model import ValueModel


@dataclass(frozen=True)
class PolicyJob:
    """What the ranks of a pool are to be.

    roles: those of actor, reference, critic and rollout that live in the pool, as far as the run needs them.
    model_folder: the weights to begin with; the config's own, or after a resume those of the checkpoint.
    policy_version: of these weights. checkpoint: the folder to go on from, or None. temperature: of sampling.
    needs: what sampling must have room for.
    """

    config: RunConfig
    roles: frozenset[RoleName]
    model_folder: Path
    policy_version: int
    checkpoint: Path | None
    store_root: Path
    temperature: float
    needs: RolloutNeeds


@dataclass(frozen=True)
class RankRoles:
    """The roles of one rank; None where a role is elsewhere or not needed. prompts: what gives prompts their pixels."""

    ranks: Ranks
    prompts: PromptProcessor
    actor: HfActor | HfRewardTrainer | None
    reference: Reference | AdapterOffReference | None
    critic: HfCritic | None
    rollout: RolloutEngine | None


def build_roles(context: WorkerContext, job: PolicyJob) -> RankRoles:
    """Every rank of the pool calls it at the same time."""
    config, roles, store = job.config, job.roles, ImageStore(job.store_root)
    ranks = init_ranks(device_of(config.model).type, timeout_s=config.placement.deadline_s)
    actor = _learner(job, store, ranks) if "actor" in roles else None
    reference = None
    if "reference" in roles:
        reference = _reference(job, store, ranks, actor)
    critic = _critic(job, store, ranks) if "critic" in roles else None
    policy = actor.policy if isinstance(actor, HfActor) else None
    if job.checkpoint is not None:
        _restore(job.checkpoint, actor, critic, ranks)
        if policy is not None and config.model.lora is not None:
            load_adapter(policy.hf, job.checkpoint / ADAPTER_FOLDER)
    rollout = _rollout(job, store, policy) if "rollout" in roles else None
    prompts = load_prompts(str(job.model_folder), config.data.image, store=store)
    return RankRoles(ranks, prompts, actor, reference, critic, rollout)


def _learner(job: PolicyJob, store: ImageStore, ranks: Ranks) -> HfActor | HfRewardTrainer:
    """What the run trains: a policy, or a reward model."""
    config = job.config
    if config.kind == "reward_model":
        reward_model = _reward_model(job, store, ranks)
        return HfRewardTrainer(reward_model, config.optim, config.train, total_steps=config.train.steps)
    folder = job.model_folder if config.model.lora is None else Path(config.model.path)
    return HfActor(
        _policy(job, store, ranks, folder),
        config.optim,
        config.train,
        temperature=job.temperature,
        total_steps=config.train.steps,
        idle_steps=config.critic_warmup_steps,
        sends_adapter=sends_adapter(config),
    )


def _reference(
    job: PolicyJob, store: ImageStore, ranks: Ranks, actor: HfActor | HfRewardTrainer | None
) -> Reference | AdapterOffReference:
    """The actor's own policy with its adapter off, where it has one in this pool; else the model of the config."""
    config = job.config
    if config.model.lora is not None and isinstance(actor, HfActor):
        return AdapterOffReference(actor.policy, config.train, temperature=job.temperature)
    first = _policy(job, store, ranks, Path(config.model.path), trainable=False)
    return Reference(first, config.train, temperature=job.temperature)


def sends_adapter(config: RunConfig) -> bool:
    """Whether the rollout engine gets the adapter alone."""
    return config.model.lora is not None and config.model.lora.sync == "adapter"


def _reward_model(job: PolicyJob, store: ImageStore, ranks: Ranks) -> RewardModel:
    model = job.config.model.model_copy(update={"path": str(job.model_folder)})
    image, fsdp = job.config.data.image, job.config.actor.fsdp
    if not _is_sharded(job.config, ranks):
        return load_reward_model(model, image, store=store, trainable=True)
    return load_sharded_reward_model(model, image, store=store, fsdp=fsdp, ranks=ranks)


def _is_sharded(config: RunConfig, ranks: Ranks) -> bool:
    return ranks.world_size > 1 or config.actor.fsdp.offload


def _restore(folder: Path, actor: HfActor | HfRewardTrainer | None, critic: HfCritic | None, ranks: Ranks) -> None:
    """The states that these parts had, whatever number of ranks had written them."""
    parts: dict[str, Any] = {}
    models: dict[str, Any] = {}
    if actor is not None:
        parts["actor"] = actor
        models["actor"] = actor.policy if isinstance(actor, HfActor) else actor.model
    if critic is not None:
        parts["critic"], models["critic"] = critic, critic.model
    if parts:
        load_sharded_parts(folder, parts, models, ranks)


def _policy(job: PolicyJob, store: ImageStore, ranks: Ranks, folder: Path, *, trainable: bool = True) -> PolicyModel:
    model = job.config.model.model_copy(update={"path": str(folder)})
    image = job.config.data.image
    if not _is_sharded(job.config, ranks):
        return load_policy(model, image, store=store, trainable=trainable)
    return load_sharded_policy(model, image, store=store, fsdp=job.config.actor.fsdp, ranks=ranks, trainable=trainable)


def _critic(job: PolicyJob, store: ImageStore, ranks: Ranks) -> HfCritic:
    """A model of its own with a value head, from the folder that the critic of one process would be copied from."""
    critic, model = critic_settings(job.config)
    image, fsdp = job.config.data.image, job.config.actor.fsdp
    if not _is_sharded(job.config, ranks):
        value_model = ValueModel(load_policy(model, image, store=store))
    else:
        value_model = load_sharded_value_model(model, image, store=store, fsdp=fsdp, ranks=ranks)
    check_reads_alike(value_model.body.prompts, load_prompts(job.config.model.path, image, store=store))
    return HfCritic(value_model, critic, job.config.train, total_steps=job.config.train.steps)


def _rollout(job: PolicyJob, store: ImageStore, policy: PolicyModel | None) -> RolloutEngine:
    """policy: the actor's, where it lives in the same process."""
    config, folder = job.config, job.model_folder
    if sends_adapter(config):
        folder = Path(config.model.path)
    if config.rollout.engine == "vllm":
        from mmrl.engines.vllm_build import build_vllm_rollout

        prompts = load_prompts(str(folder), config.data.image, store=store)
        version = job.policy_version
        return build_vllm_rollout(
            config, prompts, job.needs, model_folder=folder, distributed=True, policy_version=version
        )
    if policy is not None and policy.lockstep is None:
        return HfRollout(policy, config.rollout, policy_version=job.policy_version)
    # Ranks sample different prompts for different numbers of steps, which sharded layers cannot follow.
    model = config.model.model_copy(update={"path": str(folder)})
    copy = load_policy(model, config.data.image, store=store, trainable=False)
    if sends_adapter(config) and config.model.lora is not None:
        add_adapter(copy.hf, copy.family, config.model.lora, freeze=config.model.freeze)
        copy.requires_grad_(False)
    return HfRollout(copy, config.rollout, shares_weights=False, policy_version=job.policy_version)
