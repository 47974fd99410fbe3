"""`mmrl pipeline run`: steps as jobs, gone on with after a failure, and the pipeline of the digits, shortened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from mmrl.data.digits import build_digits, digit_texts
from mmrl.models.tiny import build_tiny_qwen2_5_vl
from mmrl.trainer.quickstart import register_noisy_labels

ROOT = Path(__file__).parents[2]
PROBE = """\
name: probe
steps:
  first: {config: {kind: noop, noop: {steps: 2, checkpoint_every: 1}}}
  second:
    config:
      kind: noop
      noop: {steps: 4, checkpoint_every: 1, fail_at_step: 3, exit_code: 6, failure: "${first.run_dir}"}
  third: {config: {kind: noop, noop: {failure: "${second.model@2}"}}}
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    return os.environ | {"MMRL_JOBS_POLL_S": "0.1", "MMRL_JOBS_BEAT_S": "0.2", "MMRL_JOBS_LEASE_S": "20"}


def command(file: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "mmrl", "pipeline", "run", str(file), *words]


def run(file: Path, environment: dict[str, str], *, expected: int = 0) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        command(file, "--json"), env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == expected, done.stderr
    return {step["name"]: step for step in json.loads(done.stdout)["steps"]}


def states(steps: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    return [(name, step["state"]) for name, step in steps.items()]


def test_a_pipeline_resumes_at_the_step_that_failed(tmp_path: Path, environment: dict[str, str]) -> None:
    """The failed step goes on from its checkpoint; what waited for it takes the result of its second life."""
    file = tmp_path / "probe.yaml"
    file.write_text(PROBE.replace("exit_code: 6", "exit_code: 6, fail_attempts: 1"))
    first = run(file, environment, expected=6)
    assert states(first) == [("first", "succeeded"), ("second", "failed"), ("third", "cancelled")]
    assert first["second"]["error"] == first["first"]["run_dir"]
    second = run(file, environment, expected=6)
    assert second["first"]["job"] == first["first"]["job"]
    assert second["second"]["job"] != first["second"]["job"]
    assert second["second"]["step"] == 2  # it went on from the checkpoint of step 2, and failed in its first attempt
    file.write_text(PROBE.replace("fail_at_step: 3, exit_code: 6, ", ""))
    third = run(file, environment)
    assert states(third) == [(name, "succeeded") for name in ("first", "second", "third")]
    assert third["first"]["job"] == first["first"]["job"]
    config = (Path(third["third"]["run_dir"]) / "config.yaml").read_text()
    assert f"{third['second']['run_dir']}/checkpoints/step-000002/model" in config
    again = run(file, environment)
    assert {name: step["job"] for name, step in again.items()} == {name: step["job"] for name, step in third.items()}


def test_an_interrupted_pipeline_cancels_its_steps_and_goes_on(tmp_path: Path, environment: dict[str, str]) -> None:
    file = tmp_path / "probe.yaml"
    file.write_text("name: p\nsteps: {a: {config: {kind: noop, noop: {steps: 40, step_s: 0.1}}}}\n")
    process = subprocess.Popen(
        command(file), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("[a] step "):
            break
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
    assert "cancelled" in out
    steps = run(file, environment)
    assert (steps["a"]["state"], steps["a"]["step"]) == ("succeeded", 40)


def test_a_pipeline_can_be_left_to_the_workers(tmp_path: Path, environment: dict[str, str]) -> None:
    file = tmp_path / "probe.yaml"
    file.write_text("name: p\nsteps: {a: {config: {kind: noop}}, b: {config: {kind: noop}, after: [a]}}\n")
    submit = subprocess.run(
        command(file, "--submit", "--pool", "night", "--json"), env=environment, capture_output=True, check=True
    )
    assert [step["state"] for step in json.loads(submit.stdout)["steps"]] == ["queued", "queued"]
    worker = [sys.executable, "-m", "mmrl", "worker", "start", "--pool", "night", "--until-idle"]
    subprocess.run(worker, env=environment, capture_output=True, check=True, timeout=120)
    listed = subprocess.run(
        [sys.executable, "-m", "mmrl", "job", "list", "--json"], env=environment, capture_output=True, check=True
    )
    assert [(job["name"], job["state"]) for job in json.loads(listed.stdout)] == [
        ("p-b", "succeeded"),
        ("p-a", "succeeded"),
    ]


def digits(home: Path) -> None:
    """What `mmrl quickstart --prepare` makes, but for the warm start."""
    build_digits()
    build_tiny_qwen2_5_vl(home / "quickstart" / "base-model", sentences=digit_texts())
    register_noisy_labels(0)


def shortened(tmp_path: Path, **settings: dict[str, Any]) -> Path:
    """configs/pipeline-digits.yaml with other settings in some of its steps."""
    data = YAML(typ="safe").load((ROOT / "configs" / "pipeline-digits.yaml").read_text())
    for step, own in settings.items():
        data["steps"][step]["set"] = {**data["steps"][step].get("set", {}), **own}
    path = tmp_path / "pipeline.yaml"
    with path.open("w") as file:
        YAML().dump(data, file)
    return path


def test_the_pipeline_of_the_digits_runs_shortened(tmp_path: Path, environment: dict[str, str]) -> None:
    digits(tmp_path / "home")
    few = {"eval.max_samples": 40}
    file = shortened(
        tmp_path,
        sft={"train.steps": 40},
        before=few,
        marks={"mark.max_samples": 60, "mark.responses": 8},
        reward_model={"train.steps": 4, "reward_model.batch_size": 8},
        grpo={"train.steps": 2, "rollout.prompts_per_step": 4},
        after=few,
        dpo={"train.steps": 4, "preference.batch_size": 8},
        after_dpo=few,
    )
    steps = run(file, environment)
    assert {step["state"] for step in steps.values()} == {"succeeded"}
    for name in ("before", "after", "after_dpo"):
        assert 0 <= steps[name]["metrics"]["accuracy"] <= 1
    assert steps["marks"]["metrics"]["mark/num_pairs"] > 0
    assert "against/p_value" in steps["after"]["metrics"]
    assert 0 <= steps["reward_model"]["metrics"]["eval/accuracy"] <= 1
    exported = Path(steps["export"]["run_dir"]) / "model"
    assert (exported / "config.json").is_file()
    assert "digits-grpo" in (exported / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "two-images"])
def test_the_pipelines_learn(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Held-out pair accuracy at least 0.9; accuracy rises by at least 0.15 against the reward model, and by DPO."""
    digits(tmp_path / "home")
    steps = run(ROOT / "configs" / f"pipeline-{name}.yaml", environment)
    before = steps["before"]["metrics"]["accuracy"]
    assert steps["reward_model"]["metrics"]["eval/accuracy"] >= 0.9
    assert steps["after"]["metrics"]["accuracy"] >= before + 0.15
    assert steps["after"]["metrics"]["against/p_value"] < 0.05
    assert steps["after_dpo"]["metrics"]["accuracy"] >= before + 0.15
