"""What ranks wrote, any number of ranks goes on from, and so does a run in one process; and the other way round."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from shard_case import Case, World, relative_gap
from shard_checkpoints import critic_of, save_whole, update, write_weights
from shard_runs import run_ranks

from mmrl.config.run import ImageConfig
from mmrl.engines.shard_checkpoint import read_states
from mmrl.engines.shard_reader import ShardReader
from mmrl.engines.sharding import Ranks
from mmrl.errors import DataError
from mmrl.models.policy import load_policy
from mmrl.models.value_model import ValueModel

CASE = Case("whole")


class AloneRanks(Ranks):
    """A group of one, without a process group."""

    def __init__(self) -> None:
        super().__init__(rank=0, world_size=1, device=torch.device("cpu"), control=None)

    def barrier(self) -> None: ...

    def gather(self, mine: object) -> list[object]:
        return [mine]


@pytest.fixture
def alone(tmp_path: Path, tiny_model: Callable[..., Path]) -> World:
    """This process, with the images and rollouts that the ranks have."""
    settings = {"scratch": str(tmp_path), "models": {"qwen2_5_vl": str(tiny_model(seed=1))}}
    return World(settings, AloneRanks())


def test_c04_a_run_goes_on_on_another_number_of_ranks(alone: World, tmp_path: Path) -> None:
    """From one process to two ranks and from two ranks to one process the next update is the same."""
    write_whole_checkpoint(alone, tmp_path / "whole")
    cases = [{"name": "save", "kind": "save"}, {"name": "resume", "kind": "resume", "folder": "whole"}]
    run_ranks(2, models=models_of(alone), scratch=tmp_path, cases=cases)
    resume_alone(alone, tmp_path / "checkpoint")

    assert gap_after_resume(tmp_path / "whole", "2") < 1e-6
    assert gap_after_resume(tmp_path / "checkpoint", "alone") < 1e-6
    check_files(tmp_path / "checkpoint" / "checkpoint")


@pytest.mark.slow
def test_c04_one_and_four_ranks_go_on_from_what_two_wrote(alone: World, tmp_path: Path) -> None:
    run_ranks(2, models=models_of(alone), scratch=tmp_path, cases=[{"name": "save", "kind": "save"}])
    for num_ranks in (1, 4):
        cases = [{"name": "resume", "kind": "resume"}]
        run_ranks(num_ranks, models=models_of(alone), scratch=tmp_path, cases=cases)
        assert gap_after_resume(tmp_path / "checkpoint", str(num_ranks)) < 1e-6


def test_x04_a_list_of_tensors_that_could_run_code_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / ".metadata").write_bytes(pickle.dumps(_Touch(str(marker))))
    with pytest.raises(DataError, match="which could run code"):
        ShardReader(tmp_path).read_metadata()
    assert not marker.exists()


def models_of(world: World) -> dict[str, Path]:
    return {name: Path(path) for name, path in world.models.items()}


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


class _Touch:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self._path),)
