"""Numbers stay numbers: what stops a run, what it leaves, and where a replay says that it began."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest
import torch
from killing import FULL_DISK, small_config
from safetensors.torch import load_file, save_file

from mmrl.cli.app import main
from mmrl.errors import RunFailedError
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.checkpoint_folder import find_fault
from mmrl.trainer.faults import read_fault

STAGE = '''
from dataclasses import replace


class Spoil:
    """In step 2 the advantage of the third response becomes `value`, at its first token."""

    def __init__(self, value):
        self.value = float(value)

    def __call__(self, update, context):
        if context.step != 2:
            return update
        advantages = update.batch.advantages.clone()
        advantages[2, 0] = self.value
        return replace(update, batch=update.batch.with_(advantages=advantages))
'''


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "spoil.py").write_text(STAGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


def run_with_advantage(home: Path, value: str, name: str, *stages: dict[str, object], **more: object) -> Path:
    """Step 2 stops on that advantage. Returns the fault's file."""
    stage = {"after": "advantages", "path": str(home / "spoil.py"), "name": "Spoil", "arguments": {"value": value}}
    config = small_config(home, steps=3, name=name, checkpoint={"every": 1}, stages=[*stages, stage], **more)
    return stopped(home, config, step=2)


def stopped(home: Path, config, *, step: int) -> Path:
    run_dir = home / config.name
    with pytest.raises(RunFailedError, match="--replay"):
        train(config, run_dir=run_dir, progress=make_progress("quiet"))
    assert RunReader(run_dir).state().state == "failed"
    return run_dir / "attempt-1" / "faults" / f"step-{step:06d}" / "fault.json"


def replayed(path: Path, capsys: pytest.CaptureFixture[str], *overrides: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = main(["train", "--replay", str(path), *overrides, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_an_advantage_that_is_not_a_number_stops_the_run_before_any_weight_moves(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_with_advantage(home, "nan", "nan-advantage")

    fault, batch, folder = read_fault(path)
    assert (fault.step, fault.update) == (2, None)
    assert batch.sample_ids is not None
    assert len(batch.sample_ids) == 4
    assert all(prompt.images for prompt in batch.prompts)
    assert find_fault(folder / "checkpoint") is None
    before = load_file(home / "nan-advantage" / "checkpoints" / "step-000001" / "model" / "model.safetensors")
    after = load_file(folder / "checkpoint" / "model" / "model.safetensors")
    assert all(torch.equal(weight, after[name]) for name, weight in before.items()), "a weight moved"
    assert not (home / "nan-advantage" / "checkpoints" / "step-000002").exists()

    code, found = replayed(path, capsys)
    assert code == 6
    assert found["first"]["kind"] == "input"
    assert (found["first"]["name"], found["first"]["row"], found["first"]["token"]) == ("advantages", 2, 0)


def test_where_the_disk_takes_no_weights_a_replay_takes_the_checkpoint_before(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "full.py").write_text(FULL_DISK)
    full = {"after": "rollout", "path": str(home / "full.py"), "name": "FullDisk", "arguments": {"first": 2, "last": 2}}
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        path = run_with_advantage(home, "inf", "full", full)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    assert sorted(file.name for file in path.parent.iterdir()) == ["batch.pt", "fault.json"]
    code, found = replayed(path, capsys)
    assert (code, found["first"]["name"]) == (6, "advantages")
    assert found["weights"].endswith("checkpoints/step-000001")


@pytest.mark.slow  # bfloat16 is slow on most CPUs
def test_a_gradient_that_overflows_is_traced_to_where_it_does(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_with_advantage(home, "3e38", "overflow", model={"path": str(home / "model"), "dtype": "bfloat16"})

    fault, _, _ = read_fault(path)
    assert (fault.learner, fault.update) == ("actor", 0)
    code, found = replayed(path, capsys)
    assert (code, found["reproduced"]) == (6, True)
    assert found["first"]["kind"] in ("gradient", "weight_gradient")
    assert "The weights were not changed" in found["error"]


def test_a_norm_that_overflows_in_float32_heals_in_float64(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No single number is infinite; the sum of squares is."""
    path = run_with_advantage(home, "1e25", "norm", model={"path": str(home / "model"), "dtype": "float32"})

    code, found = replayed(path, capsys)
    assert (code, found["first"]["kind"]) == (6, "gradient")
    assert "squares overflow" in found["first"]["name"]

    code, found = replayed(path, capsys, "model.dtype=float64")
    assert (code, found["reproduced"], found["error"]) == (0, False, None)


def test_a_weight_made_huge_is_traced_to_the_module_that_it_spoils(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config(home, steps=2, name="huge", model={"path": str(home / "huge-model"), "dtype": "float32"})
    (home / "huge-model").mkdir()
    for file in (home / "model").iterdir():
        (home / "huge-model" / file.name).write_bytes(file.read_bytes())
    weights = load_file(home / "huge-model" / "model.safetensors")
    name = next(name for name in weights if name.endswith("layers.1.mlp.up_proj.weight"))
    weights[name][:] = 3e38
    save_file(weights, home / "huge-model" / "model.safetensors", metadata={"format": "pt"})

    path = stopped(home, config, step=1)

    code, found = replayed(path, capsys)
    assert code == 6
    assert found["first"]["kind"] == "module"
    assert found["first"]["name"].endswith("layers.1.mlp.up_proj")
    assert found["first"]["arose_here"] is True
    assert found["fault"]["update"] is None, "it was found while sampling"
    assert len(set(found["fault"]["samples"])) == 1
    assert any(place["kind"] == "logprobs" and place["token"] == 0 for place in found["places"])


def test_a_value_loss_that_overflows_is_replayed_on_the_critic(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "huge.py").write_text("def score(response):\n    return 1e30 * (1 + len(response) % 3)\n")
    reward = {"type": "function", "path": str(home / "huge.py"), "name": "score"}
    model = {"path": str(home / "model"), "dtype": "float32"}
    algorithm = {"type": "ppo", "group_size": 2}
    config = small_config(home, steps=1, name="critic", algorithm=algorithm, reward=[reward], model=model)

    path = stopped(home, config, step=1)

    code, found = replayed(path, capsys)
    assert (code, found["fault"]["learner"], found["fault"]["update"]) == (6, "critic", 0)
    assert (found["first"]["kind"], found["first"]["value"]) == ("loss_term", "inf")
    assert found["first"]["name"].startswith("critic/")


def test_a_replay_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--replay", str(tmp_path / "none.json")]) == 3
    assert "no fault that a run has written aside" in capsys.readouterr().err
    assert main(["train"]) == 2
    assert "CONFIG is missing" in capsys.readouterr().err
