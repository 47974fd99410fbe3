"""A run that is cut and goes on is the run that was never cut."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from learning import run, run_config, warm_model
from safetensors.torch import load_file

from mmrl.errors import ConflictError
from mmrl.runs.reader import RunReader
from mmrl.trainer.checkpoints import find_fault, newest_whole_checkpoint


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("resume")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home / "model", "digits-which", steps=20)


def config(model: Path, steps: int):
    return run_config(
        model,
        "digits-which@train",
        steps=steps,
        rollout={"prompts_per_step": 4, "max_response_tokens": 8},
        optim={"lr": 1e-3},
        checkpoint={"every": 2, "keep": 5},
    )


def weights(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "checkpoints" / f"step-{step:06d}" / "model" / "model.safetensors")


def prompts_by_step(run_dir: Path) -> dict[int, list[str]]:
    reader = RunReader(run_dir)
    return {step: [group.prompt_id for group in reader.sample_groups(step, "train")] for step in reader.steps("train")}


def test_a_run_cut_at_step_four_ends_with_the_weights_and_samples_of_the_unbroken_one(home: Path, model: Path):
    run(config(model, 6), home / "unbroken")
    run(config(model, 4), home / "cut")
    run(config(model, 6), home / "cut")

    for name, weight in weights(home / "unbroken", 6).items():
        assert torch.equal(weight, weights(home / "cut", 6)[name]), name
    assert prompts_by_step(home / "cut") == prompts_by_step(home / "unbroken")
    steps = [row.step for row in RunReader(home / "cut").metrics()]
    assert steps == sorted(set(steps)), "each step counts once along the surviving line"
    assert (home / "cut" / "attempt-2").is_dir()


def test_the_first_start_says_that_it_starts_fresh(home: Path, model: Path):
    run(config(model, 2), home / "fresh")
    messages = [event.fields.get("message", "") for event in RunReader(home / "fresh").events()]
    assert any("starts fresh" in message for message in messages)


@pytest.mark.parametrize("damage", ["no manifest", "short shard", "changed byte", "leftover temporary"])
def test_a_damaged_checkpoint_is_passed_over_and_named(home: Path, model: Path, damage: str):
    folder = home / f"damaged-{damage.replace(' ', '-')}"
    run(config(model, 4), folder)
    newest = folder / "checkpoints" / "step-000004"
    shard = newest / "model" / "model.safetensors"
    said: list[str] = []
    if damage == "no manifest":
        (newest / "manifest.json").unlink()
    elif damage == "short shard":
        shard.write_bytes(shard.read_bytes()[:-100])
    elif damage == "changed byte":
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(bytes(content))
    else:
        shutil.copytree(newest, newest.with_name(".step-000006.1.tmp"))

    point = newest_whole_checkpoint(folder, say=said.append)

    assert point is not None
    if damage == "leftover temporary":
        assert (point.step, said) == (4, [])
    else:
        assert point.step == 2
        assert "step-000004 is passed over" in said[0]


def test_a_checkpoint_knows_the_hash_of_every_file(home: Path, model: Path):
    run(config(model, 2), home / "hashes")
    folder = home / "hashes" / "checkpoints" / "step-000002"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert set(manifest["files"]) == files - {"manifest.json"}
    assert find_fault(folder) is None


def test_another_run_does_not_go_on_in_this_folder(home: Path, model: Path):
    run(config(model, 2), home / "taken")
    other = config(model, 2).model_copy(update={"name": "other"})
    with pytest.raises(ConflictError, match="other"):
        run(other, home / "taken")
