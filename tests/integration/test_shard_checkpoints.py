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


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shards")


@pytest.fixture(scope="module")
def alone(scratch: Path, tiny_model: Callable[..., Path]) -> World:
    """This process, with the images and rollouts that the ranks have."""
    settings = {"scratch": str(scratch), "models": {"qwen2_5_vl": str(tiny_model(seed=1))}}
    return World(settings, AloneRanks())


@pytest.fixture(scope="module")
def written(alone: World, scratch: Path) -> Path:
    """A checkpoint of this process in scratch/whole, one of two ranks in scratch/checkpoint; each with the weights
    after one more update, and the two ranks' next update from the first."""
    actor = alone.actor(alone.whole_policy(CASE), CASE)
    critic = critic_of(ValueModel(alone.whole_policy(CASE)), CASE)
    update(alone, CASE, actor, critic)
    (scratch / "whole" / "checkpoint").mkdir(parents=True)
    save_whole(scratch / "whole" / "checkpoint", actor, critic)
    update(alone, CASE, actor, critic)
    write_weights(alone, scratch / "whole" / "after-save.safetensors", actor.policy, critic.model)
    cases = [{"name": "save", "kind": "save"}, {"name": "resume", "kind": "resume", "folder": "whole"}]
    run_ranks(2, models={"qwen2_5_vl": Path(alone.models["qwen2_5_vl"])}, scratch=scratch, cases=cases)
    return scratch


class AloneRanks(Ranks):
    """A group of one, without a process group."""

    def __init__(self) -> None:
        super().__init__(rank=0, world_size=1, device=torch.device("cpu"), control=None)

    def barrier(self) -> None: ...

    def gather(self, mine: object) -> list[object]:
        return [mine]


def test_a_run_in_one_process_goes_on_from_what_two_ranks_wrote(written: Path, alone: World) -> None:
    folder = written / "checkpoint" / "checkpoint"
    config = alone.config(CASE).model_copy(update={"path": str(folder / "model")})
    actor = alone.actor(load_policy(config, ImageConfig(), store=alone.store), CASE)
    critic = critic_of(ValueModel(alone.whole_policy(CASE)), CASE)
    states = read_states(folder)
    actor.load_state_dict(states["actor"])
    critic.load_state_dict(states["critic"])
    update(alone, CASE, actor, critic)
    path = written / "checkpoint" / "after-resume-alone.safetensors"
    write_weights(alone, path, actor.policy, critic.model)
    assert relative_gap(load_file(path), load_file(written / "checkpoint" / "after-save.safetensors")) < 1e-6


def test_two_ranks_go_on_from_what_a_run_in_one_process_wrote(written: Path) -> None:
    found = load_file(written / "whole" / "after-resume-2.safetensors")
    assert relative_gap(found, load_file(written / "whole" / "after-save.safetensors")) < 1e-6


def test_the_model_that_ranks_wrote_in_several_files_is_whole(written: Path, alone: World) -> None:
    folder = written / "checkpoint" / "checkpoint" / "model"
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    assert (folder / "model.safetensors.index.json").is_file()
    assert (folder / "generation_config.json").is_file()


def test_a_state_can_be_left_out_when_it_is_read(written: Path) -> None:
    assert set(read_states(written / "checkpoint" / "checkpoint", without=["critic"])) == {"actor"}


def test_x04_a_list_of_tensors_that_could_run_code_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / ".metadata").write_bytes(pickle.dumps(_Touch(str(marker))))
    with pytest.raises(DataError, match="which could run code"):
        ShardReader(tmp_path).read_metadata()
    assert not marker.exists()


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [1, 4])
def test_c04_another_number_of_ranks_goes_on_from_what_two_wrote(written: Path, alone: World, num_ranks: int) -> None:
    cases = [{"name": "resume", "kind": "resume"}]
    run_ranks(num_ranks, models={"qwen2_5_vl": Path(alone.models["qwen2_5_vl"])}, scratch=written, cases=cases)
    found = load_file(written / "checkpoint" / f"after-resume-{num_ranks}.safetensors")
    assert relative_gap(found, load_file(written / "checkpoint" / "after-save.safetensors")) < 1e-6


class _Touch:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self._path),)
