"""Brings what a run directory gains into the database: metrics, samples, checkpoints, what happened, how far it is.

Each look reads on from where the one before stopped, and writes all that it found in one guarded transaction. Where it
stopped is kept beside the run, after the transaction; a look that is repeated since that was lost writes the same rows
again, which changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mmrl.jobs.index import IndexBatch
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import CheckpointRow, Lease, ShardRow
from mmrl.jobs.worker import compaction
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.jobs.worker.tail import Lines, read_lines
from mmrl.runs import layout
from mmrl.runs.inert import inert

MAX_BYTES = 2_000_000
"""Most that one look reads of one file; a run that has run ahead takes several."""
_HISTORY = ("warning", "failure", "config_changed", "progress", "checkpoint")
"""Kinds of events that become lines of the job's history. States are told by the job's own."""
_LONGEST_TEXT = 2000


@dataclass
class Cursor:
    """How far an attempt is indexed. events, metrics: bytes. num_history: events that went to the job's history.

    compacted: split -> the last step whose shards are in a compacted file. open_shards: those indexed after that.
    """

    events: int = 0
    metrics: int = 0
    num_history: int = 0
    compacted: dict[str, int] = field(default_factory=dict)
    open_shards: dict[str, list[ShardRow]] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What one look found. is_behind: the run has more to read. num_rows: metrics; num_samples: responses."""

    is_behind: bool
    num_rows: int = 0
    num_samples: int = 0


class Indexer:
    """Of one attempt, for as long as one worker has it. Threads may share it: one look at a time."""

    def __init__(self, leases: Leases, folder: RunFolder) -> None:
        self._leases = leases
        self._folder = folder
        self._lock = threading.Lock()
        self._cursor = _read_cursor(self._cursor_file)
        self._samples_changed = self._samples_listed = 0
        self._checkpoints: dict[int, CheckpointRow] | None = None
        self._totals: int | None = None
        self._first_step: int | None = None
        self._step = 0
        self._told: tuple[int, int | None] = (0, None)

    def look(self, lease: Lease, *, at_end: bool = False, max_bytes: int = MAX_BYTES) -> Look:
        """One transaction at most. Raises LeaseLostError and DatabaseUnavailableError: nothing counts as read then."""
        with self._lock:
            events = read_lines(self._attempt_dir / layout.EVENTS_FILE, self._cursor.events, max_bytes=max_bytes)
            metrics = read_lines(self._attempt_dir / layout.METRICS_FILE, self._cursor.metrics, max_bytes=max_bytes)
            self._note_progress(events.rows, metrics.rows)
            shards = self._new_shards(at_end=at_end)
            compacted, replaced = self._compact(shards, at_end=at_end)
            history = _history(events.rows)
            checkpoints, known = self._changed_checkpoints(lease)
            rows = _metric_rows(metrics)
            batch = IndexBatch(
                metrics=rows,
                shards=(*shards, *compacted),
                replaces=replaced,
                checkpoints=checkpoints,
                history=history,
                history_from=self._cursor.num_history,
                step=self._step if self._now() != self._told else None,
                total_steps=self._totals,
                first_step=self._first_step,
            )
            if not batch.is_empty:
                self._leases.index(replace(lease, attempt=self._folder.attempt), batch)
            self._told = self._now()
            self._samples_changed = self._samples_listed
            self._checkpoints = known
            self._advance(events, metrics, history, shards, compacted, replaced)
            is_behind = bool(events.rest_bytes > max_bytes or metrics.rest_bytes > max_bytes) or (
                at_end and bool(events.rows or metrics.rows)
            )
            return Look(is_behind, len(rows), sum(shard.num_rows for shard in shards))

    def finish(self, lease: Lease) -> None:
        """Everything that is left, after the attempt has ended."""
        while self.look(lease, at_end=True).is_behind:
            pass

    @property
    def _attempt_dir(self) -> Path:
        return self._folder.attempt_dir

    @property
    def _cursor_file(self) -> Path:
        return self._folder.attempt_dir / "job" / "indexed.json"

    def _now(self) -> tuple[int, int | None]:
        return (self._step, self._totals)

    def _note_progress(self, events: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]) -> None:
        for event in events:
            if event.get("kind") == "state" and isinstance(event.get("step"), int):
                if self._first_step is None:
                    self._first_step = event["step"]
                self._step = max(self._step, event["step"])
                self._totals = event.get("total_steps") or self._totals
        self._step = max([self._step, *(row["step"] for row in metrics if isinstance(row.get("step"), int))])

    def _new_shards(self, *, at_end: bool) -> list[ShardRow]:
        """Finished shards that are not in the index yet, by split and step. A folder that has not changed since it was
        last listed is not listed again before the end."""
        folder = self._attempt_dir / "samples"
        changed = folder.stat().st_mtime_ns if folder.is_dir() else 0
        if changed == self._samples_changed and not at_end:
            return []
        self._samples_listed = changed
        known = {shard.uri for shards in self._cursor.open_shards.values() for shard in shards}
        found = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = layout.parse_shard_name(path.name)
            if name is None or str(path) in known or name[1] <= self._cursor.compacted.get(name[0], -1):
                continue
            found.append(_shard(path, *name))
        return sorted(found, key=lambda shard: (shard.split, shard.step_lo))

    def _compact(self, new: Sequence[ShardRow], *, at_end: bool) -> tuple[list[ShardRow], list[ShardRow]]:
        """The compacted files that are due, and the shards that they stand for."""
        compacted: list[ShardRow] = []
        replaced: list[ShardRow] = []
        for split in sorted({*self._cursor.open_shards, *(shard.split for shard in new)}):
            shards = [*self._cursor.open_shards.get(split, ()), *(shard for shard in new if shard.split == split)]
            while due := compaction.due(shards, at_end=at_end):
                compacted.append(compaction.compact(self._attempt_dir, due))
                replaced += due
                shards = [shard for shard in shards if shard not in due]
        return compacted, replaced

    def _changed_checkpoints(self, lease: Lease) -> tuple[list[CheckpointRow], dict[int, CheckpointRow]]:
        """Those that are new or gone since the last look, and all that are there now.

        What is not here counts as gone once the trainer has begun: before that a run in a store is not fetched yet, and
        of a run whose machine died nothing may be here at all.
        """
        known = self._checkpoints
        if known is None:
            known = {row.step: row for row in self._leases.known_checkpoints(lease)}
        here = {}
        root = layout.checkpoints_dir(self._folder.run_dir)
        for path in root.iterdir() if root.is_dir() else ():
            step = layout.parse_checkpoint_name(path.name)
            row = known.get(step) if step is not None else None
            if step is not None and row is None:
                row = _checkpoint(path, step, self._folder.attempt)
            if step is not None and row is not None:
                here[step] = row
        missing = {step: row for step, row in known.items() if step not in here}
        new = [row for step, row in here.items() if known.get(step) is not row]
        if not (self._attempt_dir / layout.EVENTS_FILE).is_file():
            return new, here | missing
        return [*(replace(row, state="deleted") for row in missing.values()), *new], here

    def _advance(
        self,
        events: Lines,
        metrics: Lines,
        history: Sequence[Mapping[str, Any]],
        shards: Sequence[ShardRow],
        compacted: Sequence[ShardRow],
        replaced: Sequence[ShardRow],
    ) -> None:
        cursor = self._cursor
        before = (cursor.events, cursor.metrics)
        cursor.events, cursor.metrics = events.offset, metrics.offset
        cursor.num_history += len(history)
        for shard in shards:
            cursor.open_shards.setdefault(shard.split, []).append(shard)
        gone = {shard.uri for shard in replaced}
        for split, open_shards in cursor.open_shards.items():
            cursor.open_shards[split] = [shard for shard in open_shards if shard.uri not in gone]
        for shard in compacted:
            cursor.compacted[shard.split] = max(shard.step_hi, cursor.compacted.get(shard.split, -1))
        if shards or compacted or before != (cursor.events, cursor.metrics):
            _write_cursor(self._cursor_file, cursor)


def _metric_rows(lines: Lines) -> tuple[tuple[int, str, float | None], ...]:
    rows = []
    for line in lines.rows:
        step = line.get("step")
        if isinstance(step, int):
            rows += [
                (step, inert(key, one_line=True), float(value) if isinstance(value, int | float) else None)
                for key, value in line.items()
                if key not in ("step", "time") and (value is None or isinstance(value, int | float))
            ]
    return tuple(rows)


def _history(events: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    found = []
    for event in events:
        if event.get("kind") in _HISTORY:
            told = {key: value[:_LONGEST_TEXT] if isinstance(value, str) else value for key, value in event.items()}
            found.append(told)
    return tuple(found)


def _shard(path: Path, split: str, step: int) -> ShardRow:
    import pyarrow.parquet as pq

    data = path.read_bytes()
    num_rows = pq.read_metadata(path).num_rows
    return ShardRow(split, step, step, str(path), num_rows, len(data), hashlib.sha256(data).hexdigest())


def _checkpoint(path: Path, step: int, attempt: int) -> CheckpointRow | None:
    """None for one without a manifest: it is not whole."""
    try:
        data = (path / layout.MANIFEST_FILE).read_bytes()
        manifest = json.loads(data)
        num_bytes = sum(int(entry["bytes"]) for entry in manifest["files"].values())
        metrics = dict(manifest.get("metrics", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    digest = hashlib.sha256(data).hexdigest()
    return CheckpointRow(step, str(path), num_bytes, digest, "complete", metrics, attempt)


def _read_cursor(path: Path) -> Cursor:
    try:
        data = json.loads(path.read_bytes())
        shards = {split: [ShardRow(**row) for row in rows] for split, rows in data.pop("open_shards").items()}
        return Cursor(**data, open_shards=shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Cursor()


def _write_cursor(path: Path, cursor: Cursor) -> None:
    """Losing it costs another look at what was read already; so it need not outlive a power cut."""
    shards = {split: [vars(row) for row in rows] for split, rows in cursor.open_shards.items()}
    text = json.dumps({**vars(cursor), "open_shards": shards})
    partial = path.with_name(".indexed.tmp")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
