"""What a run leaves behind at each step: stage timers, metrics, samples, trackers and progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mmrl.data.images import ImageStore
from mmrl.runs.progress import ProgressReporter
from mmrl.runs.records import TokenRecord
from mmrl.runs.tracker_base import sample_rows
from mmrl.runs.trackers import Trackers
from mmrl.runs.writer import RunWriter
from mmrl.types import ScoredGroup

TRACKED_SAMPLES = 16
"""Prompts of an evaluation that trackers get as a table, with their first responses."""

stage_log = logging.getLogger("mmrl.stage")


class Recorder:
    """Collects the metrics of the current step and hands them on when the step ends."""

    def __init__(self, writer: RunWriter, *, progress: ProgressReporter, store: ImageStore) -> None:
        self.writer = writer
        self.trackers: Trackers | None = None
        self._progress = progress
        self._store = store
        self._values: dict[str, float] = {}
        self.step = 0
        self.latest: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage as `timing_s/<name>`; a stage entered twice in a step adds up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            key = f"timing_s/{name}"
            self._values[key] = self._values.get(key, 0.0) + seconds
            stage_log.info("step %d: %s took %.3f s", self.step, name, seconds)

    def begin(self, step: int) -> None:
        self.step = step
        self._values = {}

    def add(self, values: Mapping[str, float]) -> None:
        self._values.update(values)

    def seconds(self, stage: str) -> float:
        """Seconds that the stage took in this step so far; 0 if it did not run."""
        return self._values.get(f"timing_s/{stage}", 0.0)

    def current(self, prefix: str) -> dict[str, float]:
        """This step's metrics so far whose names begin with `prefix`."""
        return {name: value for name, value in self._values.items() if name.startswith(prefix)}

    def end(self) -> None:
        """Writes the step's metrics to the run directory, the trackers and the terminal."""
        self.latest.update(self._values)
        self.writer.metrics(self.step, self._values)
        if self.trackers is not None:
            self.trackers.log(self.step, self._values)
        self._progress.step(self.step, self._values)

    def end_late(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics of a step that has ended already; readers join them to the others of that step."""
        self.latest.update(values)
        self.writer.metrics(step, values)

    def samples(
        self, split: str, groups: Sequence[ScoredGroup], tokens: Sequence[Sequence[TokenRecord]] | None = None
    ) -> None:
        """Keeps the step's groups; `tokens[i][j]` is what is known of the tokens of response j of group i."""
        self.writer.samples(self.step, split, groups, store_path=self._store.path, tokens=tokens)
        if self.trackers is not None and split != "train":
            rows = sample_rows(self.step, split, groups, image_path=self._store.path, limit=TRACKED_SAMPLES)
            self.trackers.samples(rows)

    def warn(self, text: str) -> None:
        self.writer.event("warning", step=self.step, message=text)
        self._progress.message(f"warning: {text}")

    def say(self, text: str) -> None:
        self.writer.event("progress", step=self.step, message=text)
        self._progress.message(text)
