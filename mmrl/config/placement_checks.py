"""What must fit together of a run's engines and the pools that they live in."""

from __future__ import annotations

from mmrl.config.actor import FsdpConfig
from mmrl.config.placement import RoleName, check_pool
from mmrl.config.run import RunConfig
from mmrl.config.unread import UnreadError


def check_engine(config: RunConfig) -> None:
    if config.rollout.engine == "vllm" and config.model.dtype == "float64":
        raise ValueError(
            "model.dtype: engine 'vllm' computes in float32 or bfloat16 (got float64); use one of these, or "
            "rollout.engine: hf"
        )


def check_placement(config: RunConfig) -> None:
    placement = config.placement
    for index, stage in enumerate(config.stages):
        if stage.pool is not None:
            check_pool(stage.pool, placement.pools, key=f"stages.{index}.pool")
    used = {placement.pool_of(role) for role in _roles_of(config)} | {stage.pool for stage in config.stages}
    idle = next((name for name in placement.pools if name not in used), None)
    if idle is not None:
        roles = [role for role, pool in placement.roles.items() if pool == idle]
        why = f"is for {' and '.join(roles)} only, which this run does not have" if roles else "has no role"
        raise ValueError(
            f"placement.pools.{idle}: pool {idle!r} {why}, so its workers would hold their place for nothing; name it "
            f"in placement.roles, such as rollout: {idle}, or leave it out"
        )
    _check_ranks(config)
    _check_gpus(config)
    _check_sharding(config)


def _check_ranks(config: RunConfig) -> None:
    placement, rollout = config.placement, config.rollout
    pool = placement.pool_of("rollout")
    workers, parts = placement.pools[pool].workers, rollout.tensor_parallel
    if workers % parts:
        fitting = [size for size in range(1, workers + 1) if workers % size == 0]
        raise ValueError(
            f"rollout.tensor_parallel: {parts} does not divide the {workers} workers of pool {pool!r}, which samples; "
            f"take one of {', '.join(map(str, fitting))}, or a multiple of {parts} as placement.pools.{pool}.workers"
        )
    if "critic" in _roles_of(config) and placement.pool_of("critic") != placement.pool_of("actor"):
        raise ValueError(
            f"placement.roles.critic: the critic shares the ranks of the actor, in pool {placement.pool_of('actor')!r} "
            f"(got {placement.pool_of('critic')!r}); leave critic out of the roles"
        )


def _check_gpus(config: RunConfig) -> None:
    """A rank computes on one GPU, and NCCL takes no two ranks of one."""
    if config.placement.executor == "inline" or config.model.device == "cpu":
        return
    placement, roles = config.placement, _roles_of(config)
    divided = {placement.pool_of(role) for role in roles if role != "rollout"}
    only_roles = {placement.pool_of(role) for role in roles} - {stage.pool for stage in config.stages}
    for name, pool in placement.pools.items():
        key, share = f"placement.pools.{name}.gpus_per_worker", pool.gpus_per_worker
        if name in divided and pool.workers > 1 and 0 < share < 1:
            raise UnreadError(
                f"{key}: the {pool.workers} workers of pool {name!r} divide a model among them, which NCCL does only "
                f"between GPUs of their own (got {share:g}); set 1, or workers: 1",
                key,
                instead=1,
            )
        if name in only_roles and share > 1:
            raise UnreadError(
                f"{key}: a worker computes on one GPU, and {share - 1:g} of its {share:g} would stand idle; set 1, and "
                f"workers: {pool.workers * share:g} to use them all",
                key,
                instead=1,
            )


def _check_sharding(config: RunConfig) -> None:
    if config.placement.executor != "inline":
        return
    for name in FsdpConfig.model_fields:
        value, default = getattr(config.actor.fsdp, name), getattr(FsdpConfig(), name)
        if value != default:
            raise UnreadError(
                f"actor.fsdp.{name}: is for models that workers hold (got {str(value).lower()}), and the run is in one "
                "process, which shards and offloads nothing; set placement.executor: ray, or leave it out",
                f"actor.fsdp.{name}",
            )


def _roles_of(config: RunConfig) -> tuple[RoleName, ...]:
    """The roles that a run of this config has."""
    algorithm, is_rl = config.algorithm, config.kind == "rl"
    has: dict[RoleName, bool] = {
        "actor": True,
        "rollout": config.kind != "reward_model",
        "reference": is_rl and algorithm.uses_reference,
        "critic": is_rl and algorithm.needs_critic,
    }
    return tuple(role for role, is_there in has.items() if is_there)
