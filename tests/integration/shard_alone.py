"""What a run in one process does with the checkpoints of ranks, and writes for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from shard_case import Case, World, relative_gap
from shard_checkpoints import critic_of, save_whole, update, write_weights

from mmrl.config.run import ImageConfig
from mmrl.engines.shard_checkpoint import read_states
from mmrl.engines.sharding import Ranks
from mmrl.models.policy import load_policy
from mmrl.models.value_model import ValueModel

CASE = Case("whole")


def world_alone(scratch: Path, models: Mapping[str, Path]) -> World:
    """This process, with the images and rollouts that the ranks have."""
    return World({"scratch": str(scratch), "models": {name: str(path) for name, path in models.items()}}, AloneRanks())


class AloneRanks(Ranks):
    """A group of one, without a process group."""

    def __init__(self) -> None:
        super().__init__(rank=0, world_size=1, device=torch.device("cpu"), control=None)

    def barrier(self) -> None: ...

    def gather(self, mine: object) -> list[object]:
        return [mine]


def write_whole_checkpoint(world: World, folder: Path) -> None:
    """An update, a checkpoint as of a run in one process, and the weights after one more update."""
    actor = world.actor(world.whole_policy(CASE), CASE)
    critic = critic_of(ValueModel(world.whole_policy(CASE)), CASE)
    update(world, CASE, actor, critic)
    (folder / "checkpoint").mkdir(parents=True)
    save_whole(folder / "checkpoint", actor, critic)
    update(world, CASE, actor, critic)
    write_weights(world, folder / "after-save.safetensors", actor.policy, critic.model)


def resume_alone(world: World, folder: Path) -> None:
    config = world.config(CASE).model_copy(update={"path": str(folder / "checkpoint" / "model")})
    actor = world.actor(load_policy(config, ImageConfig(), store=world.store), CASE)
    critic = critic_of(ValueModel(world.whole_policy(CASE)), CASE)
    states = read_states(folder / "checkpoint")
    actor.load_state_dict(states["actor"])
    critic.load_state_dict(states["critic"])
    update(world, CASE, actor, critic)
    write_weights(world, folder / "after-resume-alone.safetensors", actor.policy, critic.model)


def gap_after_resume(folder: Path, who: str) -> float:
    found = load_file(folder / f"after-resume-{who}.safetensors")
    return relative_gap(found, load_file(folder / "after-save.safetensors"))


def check_files(checkpoint: Path) -> None:
    """The model lies in several files with an index; each rank wrote a file; a state can be left out in reading."""
    assert len(list((checkpoint / "model").glob("model-*-of-*.safetensors"))) > 2
    assert (checkpoint / "model" / "model.safetensors.index.json").is_file()
    assert (checkpoint / "model" / "generation_config.json").is_file()
    assert [path.name for path in sorted((checkpoint / "shards").glob("*.distcp"))] == ["__0_0.distcp", "__1_0.distcp"]
    assert set(read_states(checkpoint, without=["critic"])) == {"actor"}
