"""The config of kind noop: a class of its own beside that of training, told apart by `kind`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.cli.app import main
from mmrl.config import NoopConfig, RunConfig, build_config, dump_yaml, load_config
from mmrl.config.schema import known_keys
from mmrl.errors import ConfigError
from mmrl.trainer.noop import run_noop


def write(folder: Path, text: str = "name: probe\nkind: noop\n", *, name: str = "probe.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def fault(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(path, overrides)
    return str(error.value)


def test_kind_chooses_the_class_and_overrides_are_typed_by_it(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path), ["noop.steps=7", "noop.step_s=1e-3"])
    assert isinstance(loaded.config, NoopConfig)
    assert (loaded.config.noop.steps, loaded.config.noop.step_s) == (7, 0.001)
    assert str(loaded.origin_of("noop.steps")) == "override noop.steps=7"
    assert str(loaded.origin_of("noop.exit_code")) == "default"


def test_a_dumped_noop_loads_to_an_equal_one(tmp_path: Path) -> None:
    config = NoopConfig(name="0123", noop={"steps": 3, "failure": "no"})  # type: ignore[arg-type]
    assert load_config(write(tmp_path, dump_yaml(config))).config == config


def test_an_unknown_kind_is_told_with_all_there_are(tmp_path: Path) -> None:
    message = fault(write(tmp_path, "name: a\nkind: nop\nmodel: {path: m}\ndata: {train: d}\n"))
    assert "probe.yaml:2: kind: got 'nop'; allowed: rl, sft" in message
    assert "did you mean 'noop'?" in message


def test_a_noop_takes_no_keys_of_training(tmp_path: Path) -> None:
    assert "unknown key 'optim'" in fault(write(tmp_path), "optim.lr=1")
    assert "unknown key 'noop.stps'; did you mean 'noop.steps'?" in fault(write(tmp_path), "noop.stps=1")
    assert "noop.steps: got -1; must be >= 0" in fault(write(tmp_path), "noop.steps=-1")


def test_what_needs_a_model_refuses_a_noop_and_the_other_way_round(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="kind noop does not do here; give a config of kind rl"):
        RunConfig.load(write(tmp_path))
    assert NoopConfig.load(write(tmp_path)).name == "probe"


def test_show_schema_and_diff_know_the_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = write(tmp_path), write(tmp_path, "name: probe\nkind: noop\nnoop: {steps: 2}\n", name="b.yaml")
    assert main(["config", "show", str(first), "--json"]) == 0
    keys = [entry["key"] for entry in json.loads(capsys.readouterr().out)["values"]]
    assert keys[:4] == ["name", "kind", "seed", "noop.steps"]
    assert main(["config", "diff", str(first), str(second), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"key": "noop.steps", "first": 1, "second": 2}]
    assert main(["config", "schema", "--kind", "noop"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["kind"]["const"] == "noop"
    assert main(["config", "schema", "--kind", "nop"]) == 2


def test_every_field_of_a_noop_has_a_meaning() -> None:
    schema = NoopConfig.model_json_schema()
    fields = [field for model in [schema, *schema["$defs"].values()] for field in model["properties"].values()]
    assert all(field.get("description") for field in fields)
    assert "noop.kill_at_step" in known_keys(NoopConfig)


def test_a_noop_trains_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from mmrl.cli.app import main; code = main(sys.argv[1:]);"
        "print(code, *sorted({'torch', 'pyarrow', 'mmrl.config.run'} & set(sys.modules)))"
    )
    words = ["train", str(write(tmp_path)), "--run-dir", str(tmp_path / "run"), "--json"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"


def test_a_noop_writes_its_start_beside_its_run_directory_and_nowhere_else(tmp_path: Path) -> None:
    for name in (
        "/tmp/starts.jsonl",
        "../starts.jsonl",
        "runs/starts.jsonl",
        "authorized_keys",
        ".jsonl",
        "a\\b.jsonl",
    ):
        with pytest.raises(ConfigError, match=r"noop\.starts_file"):
            build_config({"name": "n", "kind": "noop", "noop": {"starts_file": name}})
    config = NoopConfig(name="n", noop={"starts_file": "starts.jsonl"})  # type: ignore[arg-type]
    run_noop(config, run_dir=tmp_path / "runs" / "one")
    (line,) = (tmp_path / "runs" / "starts.jsonl").read_text().splitlines()
    assert json.loads(line)["run_dir"] == str(tmp_path / "runs" / "one")
    mine = tmp_path / "mine"
    mine.write_text("")
    (tmp_path / "starts.jsonl").symlink_to(mine)
    with pytest.raises(OSError, match="symbolic links"):
        run_noop(config, run_dir=tmp_path / "two")
    assert mine.read_text() == ""
