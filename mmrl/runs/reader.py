"""Reads a run directory, also while the run goes on.

Attempts are joined along the line that survived: an attempt that began after step s takes the place of all that
earlier attempts wrote beyond step s. What both wrote of step s itself is kept, the later value of a name winning.
An attempt that has not begun its loop takes the place of nothing. Events are a log, and all are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from mmrl.errors import NotFoundError
from mmrl.runs import layout
from mmrl.runs.config_file import parse_config
from mmrl.runs.disk import read_json_lines
from mmrl.runs.images import find_image
from mmrl.runs.pins import is_pinned
from mmrl.runs.records import CheckpointRecord, Event, GroupRecord, MetricRow, RunState, StateName, StepSummary


class RunReader:
    """Readers keep nothing: each call reads what the directory holds then."""

    def __init__(self, run_dir: Path) -> None:
        """Raises NotFoundError for a folder that is no run directory."""
        if not layout.is_run(run_dir):
            raise NotFoundError(f"{run_dir} is not a run: it holds no attempt-1 folder")
        self.run_dir = run_dir

    def config(self) -> dict[str, Any]:
        """The resolved config of the last attempt as plain data: a run may be older than today's config classes."""
        text = self.config_text()
        if text is None:
            raise NotFoundError(f"{self.run_dir / layout.CONFIG_FILE} is missing; the run ended before it began")
        return parse_config(text)

    def config_text(self) -> str | None:
        try:
            return (self.run_dir / layout.CONFIG_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def attempts(self) -> list[int]:
        return layout.attempts(self.run_dir)

    def events(self) -> list[Event]:
        """The events of all attempts, in the order in which they were written."""
        return [event for attempt in self.attempts() for event in self._events_of(attempt)]

    def metrics(self, keys: Iterable[str] | None = None) -> list[MetricRow]:
        """One row a step along the surviving line, ascending; with `keys`, only those and only rows that have one."""
        wanted = None if keys is None else set(keys)
        rows: dict[int, MetricRow] = {}
        for span in self._spans():
            for row in span.rows:
                values = {k: v for k, v in _values(row).items() if wanted is None or k in wanted}
                step = row["step"]
                if step > span.last_step or (wanted is not None and not values):
                    continue
                earlier = rows[step].values if step in rows else {}
                rows[step] = MetricRow(step, _time(row), span.attempt, {**earlier, **values})
        return [rows[step] for step in sorted(rows)]

    def splits(self) -> list[str]:
        """The splits that samples were kept of, sorted."""
        return sorted({split for split, _ in self.sample_files()})

    def steps(self, split: str) -> list[int]:
        """The steps whose samples were kept, ascending."""
        return sorted(step for name, step in self.sample_files() if name == split)

    def find_samples(self, step: int | None, split: str | None) -> tuple[int, str]:
        """Step and split that are meant where one is left open: the last step, and `train` before any other split.

        Raises NotFoundError where nothing fits.
        """
        fitting = [(at, name) for name, at in self.sample_files() if step in (None, at) and split in (None, name)]
        if not fitting:
            raise NotFoundError(self._no_samples(step, split))
        return max(fitting, key=lambda entry: (entry[0], entry[1] == "train", entry[1]))

    def sample_files(self) -> dict[tuple[str, int], Path]:
        """Split and step -> the shard of its samples that survived, that of the last attempt which wrote one."""
        shards = {}
        for span in self._spans():
            folder = layout.attempt_dir(self.run_dir, span.attempt) / "samples"
            for path in sorted(folder.iterdir()) if folder.is_dir() else []:
                key = layout.parse_shard_name(path.name)
                if key is not None and key[1] <= span.last_step:
                    shards[key] = path
        return shards

    def sample_groups(self, step: int, split: str, *, with_tokens: bool = True) -> list[GroupRecord]:
        """The groups of one step in their order. Raises NotFoundError that names the steps there are."""
        from mmrl.runs.decoding import read_groups

        path = self.sample_files().get((split, step))
        if path is None:
            raise NotFoundError(self._no_samples(step, split))
        return read_groups(path, with_tokens=with_tokens)

    def sample_summaries(self, split: str | None = None) -> list[StepSummary]:
        """The samples of each step in figures, by split and step."""
        from mmrl.runs.decoding import read_summary

        shards = sorted(self.sample_files().items())
        return [read_summary(path) for (name, _), path in shards if split is None or name == split]

    def image(self, sha256: str) -> Path | None:
        """Where an image of the run's samples lies; None if it was not kept."""
        return find_image(self.run_dir, sha256)

    def checkpoints(self) -> list[CheckpointRecord]:
        """The checkpoints that are whole, by step: one without a readable manifest was never finished."""
        return read_checkpoints(self.run_dir)

    def state(self) -> RunState:
        attempt = self.attempts()[-1]
        events = self._events_of(attempt)
        states = [event for event in events if event.kind == "state"]
        span = self._spans()[-1]
        done = [row.step for row in self.metrics()[-1:]]
        failures = [str(event.fields.get("message")) for event in events if event.kind == "failure"]
        totals = [event.fields["total_steps"] for event in states if event.fields.get("total_steps") is not None]
        times = [*(event.time for event in events), *(_time(row) for row in span.rows[-1:])]
        state: StateName = states[-1].fields["state"] if states else "starting"
        return RunState(
            state=state,
            attempt=attempt,
            step=max(*done, span.begin or 0, 0),
            total_steps=totals[-1] if totals else None,
            started_at=times[0] if times else None,
            updated_at=max(times, default=None),
            failure=failures[0] if failures else None,
        )

    def _events_of(self, attempt: int) -> list[Event]:
        path = layout.attempt_dir(self.run_dir, attempt) / layout.EVENTS_FILE
        return [
            Event(_time(row), attempt, row["kind"], {k: v for k, v in row.items() if k not in ("time", "kind")})
            for row in read_json_lines(path)
        ]

    def _spans(self) -> list[_Span]:
        spans = []
        for attempt in self.attempts():
            folder = layout.attempt_dir(self.run_dir, attempt)
            rows = read_json_lines(folder / layout.METRICS_FILE)
            spans.append(_Span(attempt, _begin(self._events_of(attempt), rows), rows))
        return [span.until(later.begin for later in spans[index + 1 :]) for index, span in enumerate(spans)]

    def _no_samples(self, step: int | None, split: str | None) -> str:
        """What was asked for in vain and what there is near it."""
        shards = self.sample_files()
        asked = f"no {split} samples" if split is not None else "no samples"
        asked += f" of step {step}" if step is not None else ""
        if not shards:
            return f"{self.run_dir} holds {asked}: none were kept yet"
        others = sorted(name for name, at in shards if at == step)
        if others:
            return f"{self.run_dir} holds {asked}, but {' and '.join(others)} samples of it"
        steps = sorted({at for name, at in shards if split in (None, name)})
        if not steps:
            return f"{self.run_dir} holds {asked}; its splits are {', '.join(self.splits())}"
        near = sorted(sorted(steps, key=lambda at: abs(at - (step or 0)))[:3])
        return f"{self.run_dir} holds {asked}; nearest: {', '.join(map(str, near))}"


@dataclass(frozen=True)
class _Span:
    """begin: the steps done when the attempt's loop began; None before that. last_step: what still counts of it."""

    attempt: int
    begin: int | None
    rows: list[dict[str, Any]]
    last_step: float = float("inf")

    def until(self, begins: Iterable[int | None]) -> _Span:
        last_step = min((begin for begin in begins if begin is not None), default=float("inf"))
        return _Span(self.attempt, self.begin, self.rows, last_step)


def read_checkpoints(run_dir: Path) -> list[CheckpointRecord]:
    """`RunReader.checkpoints` of a folder that may hold no run yet."""
    root = layout.checkpoints_dir(run_dir)
    folders = sorted(root.iterdir()) if root.is_dir() else []
    found = [_checkpoint(path) for path in folders if layout.parse_checkpoint_name(path.name) is not None]
    return sorted((entry for entry in found if entry is not None), key=lambda entry: entry.step)


def _begin(events: list[Event], rows: list[dict[str, Any]]) -> int | None:
    """The step of the first state event that names one; without it, the first step with metrics."""
    for event in events:
        if event.kind == "state" and isinstance(event.fields.get("step"), int):
            return int(event.fields["step"])
    return rows[0]["step"] if rows else None


def _checkpoint(path: Path) -> CheckpointRecord | None:
    try:
        manifest = json.loads((path / layout.MANIFEST_FILE).read_bytes())
        num_bytes = sum(entry["bytes"] for entry in manifest["files"].values())
        return CheckpointRecord(manifest["step"], path, num_bytes, manifest.get("metrics", {}), is_pinned(path))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _values(row: Mapping[str, Any]) -> dict[str, float | None]:
    return {key: value for key, value in row.items() if key not in ("step", "time")}


def _time(row: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(row["time"])
