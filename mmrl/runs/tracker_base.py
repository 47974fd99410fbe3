"""What every tracker is told, and which of it is new.

A resumed attempt makes steps again that an earlier one sent. They are sent again, since they may differ, but under a
name of their own: `segment_2/reward/mean` for what attempt 2 made anew. So nothing is dropped, and under its plain name
each step has one value. The run directory alone says which of the two survived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mmrl.runs.disk import read_json_lines
from mmrl.runs.layout import METRICS_FILE, attempt_dir, attempts
from mmrl.runs.records import StateName
from mmrl.types import ScoredGroup


@dataclass(frozen=True)
class SampleRow:
    """One response of a step, for a table: texts, reward and the paths of its prompt's images."""

    step: int
    split: str
    prompt: str
    images: tuple[Path, ...]
    answer: str | None
    response: str
    reward: float | None
    parts: Mapping[str, float | None]


class Tracker(Protocol):
    """One service. Any method may raise; `Trackers` then drops it."""

    def start(self, config: Mapping[str, Any]) -> None:
        """config: the resolved config as plain data, secrets removed."""
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def samples(self, rows: Sequence[SampleRow]) -> None:
        """Responses of one step and split."""
        ...

    def finish(self, state: StateName) -> None: ...


@dataclass(frozen=True)
class Segment:
    """Which attempt sends, and up to which step earlier ones have sent before it; -1 for a first one."""

    number: int
    sent_until: int

    @classmethod
    def of(cls, run_dir: Path) -> Segment:
        """By the run directory: the last attempt, and the steps with metrics of those before it."""
        own = max(attempts(run_dir), default=1)
        steps = [
            row["step"]
            for number in attempts(run_dir)
            if number < own
            for row in read_json_lines(attempt_dir(run_dir, number) / METRICS_FILE)
        ]
        return cls(own, max(steps, default=-1))

    def named(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics under the names by which they are sent."""
        if step > self.sent_until:
            return dict(metrics)
        return {f"segment_{self.number}/{name}": value for name, value in metrics.items()}


def sample_rows(
    step: int, split: str, groups: Sequence[ScoredGroup], *, image_path: Any, limit: int
) -> list[SampleRow]:
    """The first `limit` groups' first responses. image_path: from an ImageRef to its file."""
    rows = []
    for group in groups[:limit]:
        sample, rollout, result = group.group.sample, group.group.rollouts[0], group.rewards[0]
        rows.append(
            SampleRow(
                step=step,
                split=split,
                prompt="\n".join(f"{message.role}: {message.text}" for message in sample.messages),
                images=tuple(image_path(image) for image in sample.images),
                answer=sample.answer,
                response=rollout.text,
                reward=result.total,
                parts={part.name: part.value for part in result.parts},
            )
        )
    return rows
