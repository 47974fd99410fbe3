"""`mmrl train` and `mmrl run`: thin over the trainer, which is replaced here."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from config_files import write_config

from mmrl.cli.app import main
from mmrl.errors import ConflictError, DataError, RunFailedError
from mmrl.runs.layout import folder_name


@dataclass
class FakeTrainer:
    """Stands where `mmrl.trainer` is imported from, and keeps what it was called with."""

    error: BaseException | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)

    def train(self, config: Any, **arguments: Any) -> Any:
        self.calls.append({"config": config, **arguments})
        if self.error is not None:
            raise self.error
        result = ModuleType("result")
        result.__dict__.update(run_dir=arguments["run_dir"], steps=3, metrics={"reward/mean": 0.5})
        return result

    def preflight(self, config: Any) -> Any:
        self.calls.append({"config": config})
        report = ModuleType("report")
        report.__dict__.update(lines=["data: 6 samples", "batch: 2"], to_json=lambda: {"train_samples": 6})
        return report


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTrainer:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    fake = FakeTrainer()
    package, preflight = (ModuleType(f"mmrl.trainer{tail}") for tail in ("", ".preflight"))
    package.__dict__.update(train=fake.train, __path__=[])
    preflight.__dict__.update(preflight=fake.preflight)
    for module in (package, preflight):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return fake


def test_train_hands_config_and_folder_to_the_trainer(
    trainer: FakeTrainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, "train: {steps: 100}\n")
    assert main(["train", str(path), "seed=4", "--run-dir", str(tmp_path / "r"), "optim.lr=1e-6"]) == 0
    (call,) = trainer.calls
    assert (call["run_dir"], call["resume"]) == (tmp_path / "r", "auto")
    assert (call["config"].seed, call["config"].optim.lr, call["config"].train.steps) == (4, 1e-6, 100)
    captured = capsys.readouterr()
    assert captured.err == f"config: {path}, changed by seed=4, optim.lr=1e-6\n"
    assert captured.out.splitlines()[1:] == [f"run_dir      {tmp_path / 'r'}", "steps        3", "reward/mean  0.5"]


def test_an_attempt_of_a_job_that_an_earlier_version_stored_is_trained(trainer: FakeTrainer, tmp_path: Path) -> None:
    """A worker gives the trainer the job's config as it was stored, here with a default of its time."""
    folder = tmp_path / "run" / "attempt-2" / "job"
    folder.mkdir(parents=True)
    text = "algorithm: {type: reinforce_plus_plus, outcome_gate: shaping}\n"
    file = write_config(folder, text, name="config.yaml")
    assert main(["train", str(file), "--run-dir", str(tmp_path / "run")]) == 0
    assert trainer.calls[0]["config"].algorithm.gate == "off"
    assert main(["train", str(write_config(tmp_path, text)), "--run-dir", str(tmp_path / "other")]) == 2


def test_train_can_be_told_to_start_afresh_and_to_print_json(
    trainer: FakeTrainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", str(write_config(tmp_path)), "--run-dir", str(tmp_path / "r"), "--resume", "never", "--json"]
    assert main(words) == 0
    assert trainer.calls[0]["resume"] == "never"
    expected = {"run_dir": str(tmp_path / "r"), "steps": 3, "metrics": {"reward/mean": 0.5}}
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(
    ("name", "folder"), [("a b", "a-b"), ("../x", "x"), ("数字", "数字"), ("//", "run"), ("v1.2", "v1.2")]
)
def test_a_name_becomes_one_folder(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_a_dry_run_prints_the_preflight_and_writes_nothing(
    trainer: FakeTrainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    assert main(["run", str(path), "--dry-run"]) == 0
    assert capsys.readouterr().out == "data: 6 samples\nbatch: 2\n"
    function = "reward=[{type: function, path: f.py, arguments: {api_key: fake-key}}]"
    assert main(["run", str(path), function, "--dry-run", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["preflight"] == {"train_samples": 6}
    assert data["config"]["name"] == "digits"
    assert data["config"]["reward"][0]["arguments"] == {"api_key": "<redacted>"}
    assert not (tmp_path / "home").exists()


def test_a_wrong_config_never_reaches_the_trainer(trainer: FakeTrainer, tmp_path: Path) -> None:
    path = write_config(tmp_path)
    assert main(["run", str(path), "algorithm.group_size=1"]) == 2
    assert main(["train", str(path), "sed=1", "--run-dir", str(tmp_path)]) == 2
    assert main(["train", str(tmp_path / "none.yaml"), "--run-dir", str(tmp_path)]) == 3
    assert trainer.calls == []


def out_of_memory() -> Exception:
    return type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate 2 GiB")


def full_disk_told_by_the_trainer() -> Exception:
    error = RunFailedError("the run in /r failed: No space left on device (/r/ev)")
    error.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/r/ev")
    return error


@pytest.mark.parametrize(
    ("make_error", "code", "message"),
    [
        (lambda: ConflictError("another config"), 5, "error: another config"),
        (lambda: DataError("too few rows"), 2, "error: too few rows"),
        (
            lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/r/ev"),
            6,
            "disk full: no space left to write /r/ev",
        ),
        (full_disk_told_by_the_trainer, 6, "error: disk full: the run in /r failed: No space left on device (/r/ev)"),
        (lambda: RuntimeError("I/O error: No space left on device (os error 28)"), 6, "no space left to write "),
        (
            out_of_memory,
            6,
            "out of memory: CUDA out of memory. Tried to allocate 2 GiB; lower train.",
        ),
        (lambda: KeyError("x"), 6, "this is a bug in mmrl"),
        (KeyboardInterrupt, 130, "interrupted; mmrl train with the same settings and --run-dir "),
    ],
)
def test_what_goes_wrong_while_a_run_is_under_way(
    make_error: Callable[[], BaseException],
    code: int,
    message: str,
    trainer: FakeTrainer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trainer.error = make_error()
    assert main(["train", str(write_config(tmp_path)), "--run-dir", str(tmp_path / "r")]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
