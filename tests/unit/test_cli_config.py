"""`mmrl config show | schema | diff`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from config_files import write_config

from mmrl.cli.app import main
from mmrl.cli.config import show_lines
from mmrl.config import load_config


def test_show_prints_each_value_with_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, "train: {steps: 100}\n")
    assert main(["config", "show", str(path), "optim.lr=1e-6", "reward.0.name=no"]) == 0
    lines = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert lines["train.steps=100"].strip() == f"{path}:5"
    assert lines["optim.lr=1e-06"].strip() == "override optim.lr=1e-6"
    assert lines["reward.0.name=no"].strip() == "override reward.0.name=no"
    assert lines["optim.betas=[0.9, 0.999]"].strip() == "default"
    assert lines["data.eval=null"].strip() == "default"


def test_runs_of_an_earlier_version_are_compared_by_folder_and_by_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, lam in (("a", 0.9), ("b", 0.8)):
        (tmp_path / name / "attempt-1").mkdir(parents=True)
        algorithm = f"{{type: ppo, outcome_gate: shaping, lam: {lam}}}"
        write_config(tmp_path / name, f"algorithm: {algorithm}\n").rename(tmp_path / name / "config.yaml")
    assert main(["config", "diff", str(tmp_path / "a"), str(tmp_path / "b" / "config.yaml")]) == 0
    out = capsys.readouterr().out
    assert "algorithm.lam" in out
    assert "outcome_gate" not in out
    assert main(["config", "show", str(tmp_path / "a")]) == 0
    (tmp_path / "a" / "config.yaml").rename(tmp_path / "mine.yaml")
    assert main(["config", "show", str(tmp_path / "mine.yaml")]) == 2


def test_the_origins_stand_in_one_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", "show", str(write_config(tmp_path))])
    lines = capsys.readouterr().out.splitlines()
    defaults = [line.index("default") for line in lines if line.endswith("  default")]
    assert len(defaults) > 40
    assert len(set(defaults)) == 1


def test_what_is_shown_can_be_given_as_overrides(tmp_path: Path) -> None:
    loaded = load_config(write_config(tmp_path), ['name="1, 2"', "rollout.stop=[a, 'b]']", "checkpoint.best="])
    shown = [line.split("  ")[0] for line in show_lines(loaded.leaves, None)]
    again = load_config(write_config(tmp_path), shown)
    assert again.config == loaded.config


def test_a_narrow_terminal_is_never_overrun(tmp_path: Path) -> None:
    overrides = ["reward.0.name=a long name of many words that needs more than one line", f"model.path={'x' * 150}"]
    lines = show_lines(load_config(write_config(tmp_path), overrides).leaves, 60)
    assert max(map(len, lines)) <= 60
    assert "seed=0" + " " * 40 in "\n".join(lines) or any(line.startswith("seed=0 ") for line in lines)


def test_show_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    assert main(["config", "show", str(path), "seed=3", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    values = {value["key"]: value for value in data["values"]}
    assert data["config"] == str(path)
    assert values["seed"] == {"key": "seed", "value": 3, "origin": "override", "where": "seed=3"}
    assert values["name"] == {"key": "name", "value": "digits", "origin": "file", "where": f"{path}:1"}
    assert values["optim.lr"] == {"key": "optim.lr", "value": 1e-6, "origin": "default", "where": None}


def test_an_override_without_equals_sign_ends_in_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """L05."""
    assert main(["config", "show", str(write_config(tmp_path)), "optim.lr", "1e-5"]) == 2
    assert capsys.readouterr().err == "error: override 'optim.lr' has no '='; write it as 'optim.lr=1e-5'\n"


def test_no_command_prints_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reward = "{type: function, path: f.py, arguments: {api_key: fake-key-1234567890}}"
    path = write_config(tmp_path, name="a.yaml")
    secret = write_config(
        tmp_path, f"reward: [{reward}]\n", base="name: digits\nmodel: {path: some/model}\ndata: {train: digits}\n"
    )
    assert main(["config", "show", str(secret)]) == 0
    assert main(["config", "show", str(secret), "--json"]) == 0
    assert main(["config", "show", str(path), f"reward=[{reward}]"]) == 0
    assert main(["config", "diff", str(path), str(secret)]) == 0
    assert main(["config", "show", str(secret), "reward.0.arguments.api_key.x=1"]) == 2
    captured = capsys.readouterr()
    assert "<redacted>" in captured.out
    assert "fake-key" not in captured.out + captured.err


def test_schema_is_json_schema_with_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["required"] == ["name", "model", "data"]
    lr = schema["$defs"]["OptimConfig"]["properties"]["lr"]
    assert lr["description"] == "Learning rate after warm-up (AdamW)."
    assert lr["default"] == 1e-6


def test_diff_prints_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write_config(tmp_path, name="a.yaml"), write_config(tmp_path, "seed: 2\n", name="b.yaml")
    assert main(["config", "diff", str(first), str(second)]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["key", str(first), str(second)]
    assert line.split() == ["seed", "0", "2"]
    assert main(["config", "diff", str(first), str(second), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"key": "seed", "first": 0, "second": 2}]
    assert main(["config", "diff", str(first), str(first)]) == 0
    assert capsys.readouterr().out == "no difference\n"
