"""Trackers: services that a run's metrics are sent to besides its run directory.

A tracker that fails never fails the run: it is dropped with one warning. The config that it gets has no secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmrl.config import plain_config
from mmrl.runs.records import StateName
from mmrl.runs.tracker_base import SampleRow, Tracker

if TYPE_CHECKING:
    from mmrl.config.kinds import AnyConfig


class Trackers:
    """The trackers of a run as one. Made by `Trackers.start`."""

    def __init__(self, trackers: Mapping[str, Tracker], warn: Callable[[str], None]) -> None:
        self._trackers = dict(trackers)
        self._warn = warn

    @classmethod
    def start(cls, names: Sequence[str], *, run_dir: Path, config: AnyConfig, warn: Callable[[str], None]) -> Trackers:
        """Starts the trackers that `config.track` names; `warn` is told once of each that fails."""
        settings = plain_config(config)
        trackers = cls({}, warn)
        for name in names:
            trackers.add(name, lambda name=name: build_tracker(name, run_dir=run_dir), settings)  # type: ignore[misc]
        return trackers

    def add(self, name: str, build: Callable[[], Tracker], config: Mapping[str, Any]) -> None:
        """Builds and starts one more tracker."""
        try:
            tracker = build()
            tracker.start(config)
        except Exception as error:
            self._report(name, error)
        else:
            self._trackers[name] = tracker

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._each(lambda tracker: tracker.log(step, metrics))

    def samples(self, rows: Sequence[SampleRow]) -> None:
        if rows:
            self._each(lambda tracker: tracker.samples(rows))

    def finish(self, state: StateName) -> None:
        self._each(lambda tracker: tracker.finish(state))
        self._trackers.clear()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except Exception as error:
                del self._trackers[name]
                self._report(name, error)

    def _report(self, name: str, error: Exception) -> None:
        self._warn(f"tracker {name} failed and is left out from here on: {type(error).__name__}: {error}")


def build_tracker(name: str, *, run_dir: Path) -> Tracker:
    """The tracker of a name that `RunConfig.track` allows."""
    if name == "tensorboard":
        from mmrl.runs.tracker_tensorboard import TensorBoardTracker

        return TensorBoardTracker(run_dir / "tensorboard")
    if name == "wandb":
        from mmrl.runs.tracker_wandb import WandbTracker

        return WandbTracker(run_dir)
    if name == "mlflow":
        from mmrl.runs.tracker_mlflow import MlflowTracker

        return MlflowTracker(run_dir)
    raise ValueError(f"unknown tracker {name!r}; known: tensorboard, wandb, mlflow")
