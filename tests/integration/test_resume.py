"""A run that is cut and goes on is the run that was never cut."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from learning import run, run_config, warm_model
from safetensors.torch import load_file

from mmrl.config import dump_yaml
from mmrl.errors import ConflictError, RunFailedError
from mmrl.runs.reader import RunReader
from mmrl.trainer.checkpoint_folder import find_fault


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


def test_a_damaged_checkpoint_never_makes_a_good_one_go(home: Path, model: Path):
    folder = home / "prune"
    run(config(model, 6), folder)
    (folder / "checkpoints" / "step-000006" / "model" / "model.safetensors").write_bytes(b"damaged")
    again = config(model, 5)
    again = again.model_copy(update={"checkpoint": again.checkpoint.model_copy(update={"keep": 1, "best": None})})

    result = run(again, folder)

    assert [path.name for path in (folder / "checkpoints").glob("step-*")] == ["step-000005"]
    assert find_fault(folder / "checkpoints" / "step-000005") is None
    assert result.checkpoint.is_dir()
    assert [row.step for row in RunReader(folder).metrics()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("content", ["{}", "[]", "not json", '{"files": {"a": {}}}'])
def test_a_damaged_manifest_is_a_fault_and_no_crash(tmp_path: Path, content: str):
    (tmp_path / "manifest.json").write_text(content)
    assert find_fault(tmp_path) == "its manifest.json is damaged"


def test_the_numbers_of_a_step_that_fails_are_kept(home: Path, model: Path):
    failing = config(model, 3)
    failing = failing.model_copy(update={"canary": failing.canary.model_copy(update={"max_gap_float32": 1e-12})})
    with pytest.raises(RunFailedError, match="sync/logprob_gap_max"):
        run(failing, home / "failing")

    (row,) = RunReader(home / "failing").metrics()
    assert row.values["sync/logprob_gap_max"] > 1e-12
    assert RunReader(home / "failing").state().state == "failed"


def test_a_run_that_another_process_trains_is_not_taken_over(home: Path, model: Path):
    folder = home / "owned"
    run(config(model, 2), folder)
    owner = json.loads((folder / "owner").read_text())
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        time.sleep(0.2)
        (folder / "owner").write_text(json.dumps(owner | {"pid": other.pid}))
        with (folder / "attempt-1" / "events.jsonl").open("a") as events:
            events.write(json.dumps({"time": "2030-01-01T00:00:00+00:00", "kind": "state", "state": "running"}) + "\n")
        with pytest.raises(ConflictError, match=f"trained by process {other.pid}"):
            run(config(model, 2), folder)
        other.kill()


def test_sigterm_cancels_and_the_same_command_goes_on(home: Path, model: Path):
    folder, path = home / "terminated", home / "terminated.yaml"
    path.write_text(dump_yaml(config(model, 200)))
    command = [sys.executable, "-m", "mmrl.cli.app", "train", str(path), "--run-dir", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not list(folder.glob("checkpoints/step-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        process.terminate()
        _, stderr = process.communicate(timeout=60)

    assert process.returncode == 7, stderr
    assert "Traceback" not in stderr
    assert RunReader(folder).state().state == "cancelled"
    done = RunReader(folder).checkpoints()[-1].step
    run(config(model, done + 1), folder)
    assert RunReader(folder).checkpoints()[-1].step == done + 1
