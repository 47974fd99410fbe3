"""Placement: which combinations of executor, pools and roles are allowed, and how they are set from a command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mmrl.config import build_config, dump_yaml, load_config
from mmrl.config.placement import PlacementConfig, PoolConfig
from mmrl.errors import ConfigError

BASE = {"name": "a", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
RAY = "placement.executor=ray"
TWO = ("placement.pools.main.workers=2",)


def placement(*overrides: str) -> PlacementConfig:
    return build_config(BASE, overrides).config.placement


def test_without_placement_everything_is_in_the_process_of_the_trainer():
    assert placement() == PlacementConfig(executor="inline", pools={"main": PoolConfig(workers=1)})


def test_pools_and_roles_are_set_by_overrides_where_the_file_has_none():
    chosen = placement(
        RAY, "placement.pools.main.workers=2", "placement.pools.b.workers=3", "placement.roles.rollout=b"
    )

    assert {name: pool.workers for name, pool in chosen.pools.items()} == {"main": 2, "b": 3}
    assert chosen.pools["main"].cpus_per_worker == 1
    loaded = build_config(BASE, [RAY, "placement.pools.main.workers=2"])
    assert str(loaded.origin_of("placement.pools.main.workers")) == "override placement.pools.main.workers=2"
    assert str(loaded.origin_of("placement.pools.main.gpus_per_worker")) == "default"


def test_a_role_that_is_not_named_is_where_the_actor_is_and_the_actor_in_the_first_pool():
    chosen = PlacementConfig(executor="ray", pools={"a": PoolConfig(), "b": PoolConfig()}, roles={"rollout": "b"})
    assert [chosen.pool_of(role) for role in ("actor", "rollout", "reference", "critic")] == ["a", "b", "a", "a"]
    moved = chosen.model_copy(update={"roles": {"actor": "b"}})
    assert [moved.pool_of(role) for role in ("actor", "rollout", "reference", "critic")] == ["b"] * 4


def test_a_placement_is_read_back_from_the_copy_of_a_run(tmp_path):
    config = build_config(BASE, [RAY, "placement.pools.b.threads=2", "placement.roles.rollout=b"]).config
    file = tmp_path / "config.yaml"
    file.write_text(dump_yaml(config))
    assert load_config(file).config == config


def test_threads_follow_the_cores_of_a_worker_unless_they_are_set():
    assert [PoolConfig(cpus_per_worker=cores).num_threads for cores in (0, 0.5, 1, 4)] == [1, 1, 1, 4]
    assert PoolConfig(cpus_per_worker=4, threads=2).num_threads == 2


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["placement.pools.main.workers=2"], "executor 'inline' is one worker in the process of the trainer"),
        (["placement.pools.b.workers=1"], "got workers main: 1, b: 1"),
        (["placement.address=auto"], "placement.address: 'auto' is for executor 'ray'"),
        ([RAY, "placement.address=ray://a:1"], "that of a Ray client server"),
        (
            [RAY, "placement.roles.rollout=mian"],
            "roles.rollout: there is no pool 'mian'; did you mean 'main'",
        ),
        ([RAY, "placement.roles.rolout=main"], "placement.roles.rolout: got 'rolout'; allowed: actor, rollout"),
        ([RAY, "placement.pools.b.workers=1"], "placement.pools.b: pool 'b' has no role"),
        (
            [RAY, "placement.pools.b.workers=1", "placement.roles.critic=b"],
            "pool 'b' is for critic only, which this run does not have",
        ),
        ([RAY, "placement.pools={}"], "placement.pools: is empty"),
        ([RAY, "placement.pools={'a b': {}}"], "'a b' is no name for a pool"),
        ([RAY, "placement.pools.main.gpus_per_worker=1.5"], "gpus_per_worker: above 1 it is a whole number"),
        ([RAY, *TWO, "placement.pools.main.gpus_per_worker=0.5"], "NCCL does only between GPUs of their own (got 0.5)"),
        ([RAY, *TWO, "placement.pools.main.gpus_per_worker=4"], "3 of its 4 would stand idle; set 1, and workers: 8"),
        ([RAY, "placement.pools.main.wrkers=2"], "did you mean 'placement.pools.main.workers'?"),
        (["actor.fsdp.offload=true"], "actor.fsdp.offload: is for models that workers hold (got true)"),
        (["actor.fsdp.shard_size=1"], "actor.fsdp.shard_size: is for models that workers hold (got 1)"),
        (["stages=[{after: reward, path: s.py, name: S, pool: b}]"], "stages.0.pool: there is no pool 'b'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_placement_that_does_not_fit_is_told_with_its_key(overrides: list[str], message: str):
    with pytest.raises(ConfigError) as raised:
        placement(*overrides)
    assert message in str(raised.value)


def test_how_models_are_sharded_is_for_workers_and_defaults_are_for_all():
    assert build_config(BASE, [RAY, "actor.fsdp.offload=true"]).config.actor.fsdp.offload
    assert not build_config(BASE, ["actor.fsdp.offload=false"]).config.actor.fsdp.offload


def test_workers_share_gpus_or_have_several_where_something_can_use_them_so():
    stage = "stages=[{after: reward, path: s.py, name: S, pool: main}]"
    several = placement(RAY, *TWO, "placement.pools.main.gpus_per_worker=2", stage)
    assert several.pools["main"].gpus_per_worker == 2
    half = "placement.pools.main.gpus_per_worker=0.5"
    assert placement(RAY, half).pools["main"].gpus_per_worker == 0.5
    assert placement(RAY, *TWO, half, "model.device=cpu").pools["main"].workers == 2


def test_a_pool_of_a_stage_alone_is_used():
    stage = "stages=[{after: reward, path: s.py, name: S, pool: b}]"
    assert set(placement(RAY, "placement.pools.b.workers=2", stage).pools) == {"main", "b"}


def test_the_parts_of_the_cluster_that_do_not_use_ray_import_neither_ray_nor_torch():
    code = "import sys, mmrl.cluster, mmrl.user_stage; print({'ray', 'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
