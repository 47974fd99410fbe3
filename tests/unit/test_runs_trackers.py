"""A tracker that fails never fails the run, and none sees a secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mmrl.config import RunConfig, plain_config
from mmrl.runs import trackers as module
from mmrl.runs.trackers import Trackers


class Recording:
    """Keeps its calls; raises in the method named `breaks_in`."""

    def __init__(self, breaks_in: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._breaks_in = breaks_in

    def start(self, config: Mapping[str, Any]) -> None:
        self._note("start", config)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._note("log", step, dict(metrics))

    def samples(self, rows: Any) -> None:
        self._note("samples", len(rows))

    def finish(self, state: str) -> None:
        self._note("finish", state)

    def _note(self, name: str, *arguments: Any) -> None:
        if name == self._breaks_in:
            raise ConnectionError("the service is away")
        self.calls.append((name, *arguments))


def config(**changes: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "r",
            "model": {"path": "m"},
            "data": {"train": "d"},
            "reward": [{"type": "function", "path": "judge.py", "arguments": {"api_key": "sk-secret"}}],
            "track": ["tensorboard", "wandb"],
        }
        | changes
    )


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> dict[str, Recording]:
    built = {"tensorboard": Recording(), "wandb": Recording()}
    monkeypatch.setattr(module, "build_tracker", lambda name, run_dir: built[name])
    return built


def test_every_tracker_gets_config_metrics_and_end(recordings: dict[str, Recording], tmp_path: Path) -> None:
    warnings: list[str] = []
    trackers = Trackers.start(config().track, run_dir=tmp_path, config=config(), warn=warnings.append)
    trackers.log(1, {"loss": 0.5})
    trackers.finish("succeeded")
    expected = [("start", plain_config(config())), ("log", 1, {"loss": 0.5}), ("finish", "succeeded")]
    assert recordings["tensorboard"].calls == recordings["wandb"].calls == expected
    assert warnings == []


def test_no_tracker_sees_a_secret(recordings: dict[str, Recording], tmp_path: Path) -> None:
    Trackers.start(["wandb"], run_dir=tmp_path, config=config(), warn=print)
    assert "sk-secret" not in str(recordings["wandb"].calls)


@pytest.mark.parametrize("method", ["start", "log", "finish"])
def test_a_tracker_that_fails_is_dropped_with_one_warning(
    method: str, recordings: dict[str, Recording], tmp_path: Path
) -> None:
    recordings["wandb"] = Recording(breaks_in=method)
    warnings: list[str] = []
    trackers = Trackers.start(config().track, run_dir=tmp_path, config=config(), warn=warnings.append)
    trackers.log(1, {"loss": 0.5})
    trackers.log(2, {"loss": 0.4})
    trackers.finish("failed")
    assert [call[0] for call in recordings["tensorboard"].calls] == ["start", "log", "log", "finish"]
    assert warnings == ["tracker wandb failed and is left out from here on: ConnectionError: the service is away"]


def test_a_tracker_that_cannot_be_imported_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, run_dir: Path) -> Recording:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(module, "build_tracker", missing)
    warnings: list[str] = []
    Trackers.start(["wandb"], run_dir=tmp_path, config=config(), warn=warnings.append).log(1, {})
    assert warnings == [
        "tracker wandb failed and is left out from here on: ModuleNotFoundError: No module named 'wandb'"
    ]
