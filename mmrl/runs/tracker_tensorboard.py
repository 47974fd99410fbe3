"""TensorBoard event files, written with TensorBoard's own writer; no torch, no TensorFlow."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from mmrl.runs.records import StateName
from mmrl.runs.tracker_base import SampleRow

_FLUSH_EVERY_S = 10


class TensorBoardTracker:
    """Scalars named as in metrics.jsonl, the config as text. A resumed run hides what earlier attempts wrote later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: EventFileWriter | None = None
        self._resumed = False

    def start(self, config: Mapping[str, Any]) -> None:
        self._resumed = self._folder.is_dir() and any(self._folder.iterdir())
        self._writer = EventFileWriter(str(self._folder), flush_secs=_FLUSH_EVERY_S)
        text = "```json\n" + json.dumps(config, indent=2, default=str) + "\n```"
        self._add(Event(summary=text_pb("config", text), step=0))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._resumed:
            # TensorBoard drops everything from this step on that came before this mark.
            self._add(Event(session_log=SessionLog(status=SessionLog.START), step=step))
            self._resumed = False
        values = [
            Summary.Value(tag=name, simple_value=float(value))
            for name, value in metrics.items()
            if math.isfinite(float(value))
        ]
        self._add(Event(summary=Summary(value=values), step=step))

    def samples(self, rows: Sequence[SampleRow]) -> None:
        """As text, a paragraph a response."""
        first = rows[0]
        texts = [
            f"{row.prompt}\n\nanswer: {row.answer}\n\nresponse (reward {row.reward}): {row.response}" for row in rows
        ]
        self._add(Event(summary=text_pb(f"samples/{first.split}", "\n\n---\n\n".join(texts)), step=first.step))

    def finish(self, state: StateName) -> None:
        if self._writer is not None:
            self._add(Event(summary=text_pb("state", state), step=0))
            self._writer.close()

    def _add(self, event: Event) -> None:
        assert self._writer is not None, "start comes first"
        event.wall_time = time.time()
        self._writer.add_event(event)
