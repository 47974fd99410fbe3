"""What a run shows while it goes on, all of it on stderr: a live bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, TextIO

from mmrl.runs.disk import plain
from mmrl.runs.inert import inert

ProgressMode = Literal["auto", "rich", "plain", "json", "quiet"]

HEADLINES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("reward", ("reward/mean",), "{:.3f}"),
    ("loss", ("sft/loss",), "{:.4f}"),
    ("eval reward", ("eval/reward",), "{:.3f}"),
    ("accuracy", ("eval/exact", "eval/choice", "eval/math"), "{:.3f}"),
    ("kl", ("actor/kl_reference", "actor/approx_kl"), "{:.4f}"),
    ("length", ("response/length_mean",), "{:.1f}"),
    ("tokens/s", ("perf/tokens_per_s", "perf/rollout_tokens_per_s"), "{:.0f}"),
)
"""Label, the metrics that may stand under it (the first that exists), and how the number is written."""


class ProgressReporter(Protocol):
    """What the trainer tells of its way. `start` may be called once; `close` any number of times."""

    def start(self, total: int, *, completed: int = 0) -> None:
        """The loop begins: `total` steps in all, `completed` of them done by earlier attempts."""
        ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step ended; step 0 is the evaluation before the first."""
        ...

    def message(self, text: str) -> None: ...

    def finish(self, summary: Mapping[str, float]) -> None:
        """The run ended well; `summary` holds the last value of each metric."""
        ...

    def close(self) -> None:
        """Nothing more comes, whether the run ended well or not."""
        ...


def make_progress(mode: ProgressMode = "auto", *, stream: TextIO | None = None) -> ProgressReporter:
    """auto: a live bar where stderr is a terminal, plain lines where it is none."""
    stream = stream if stream is not None else sys.stderr
    if mode == "auto":
        mode = "rich" if stream.isatty() else "plain"
    if mode == "rich":
        from mmrl.runs.progress_rich import RichProgress

        return RichProgress(stream)
    if mode == "json":
        return JsonProgress(stream)
    return PlainProgress(stream) if mode == "plain" else QuietProgress(stream)


class Pace:
    """Seconds since the start and to the end, from the mean time of the steps that this attempt made."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.total = 0
        self._completed = 0

    def start(self, total: int, completed: int) -> None:
        self._started, self.total, self._completed = self._clock(), total, completed

    def elapsed_s(self) -> float:
        return self._clock() - self._started

    def left_s(self, step: int) -> float | None:
        """None before the first step of this attempt has ended."""
        made = step - self._completed
        return self.elapsed_s() / made * (self.total - step) if made > 0 else None


class PlainProgress:
    """A line every few seconds, and one for each evaluation, the first and the last step."""

    def __init__(self, stream: TextIO, *, every_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._every_s = every_s
        self._pace = Pace(clock)
        self._clock = clock
        self._last_line: float | None = None

    def start(self, total: int, *, completed: int = 0) -> None:
        self._pace.start(total, completed)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        now = self._clock()
        waited = self._last_line is None or now - self._last_line >= self._every_s
        if waited or step == self._pace.total or any(name.startswith("eval/") for name in metrics):
            self._last_line = now
            self._print(self._line(step, metrics))

    def message(self, text: str) -> None:
        self._print(inert(text))

    def finish(self, summary: Mapping[str, float]) -> None:
        self._print(finish_line(self._pace, summary))

    def close(self) -> None:
        self._stream.flush()

    def _line(self, step: int, metrics: Mapping[str, float]) -> str:
        left_s = self._pace.left_s(step)
        words = [f"step {step}/{self._pace.total}", *(f"{label} {text}" for label, text in headline(metrics))]
        if left_s is not None and left_s > 0:
            words.append(f"eta {duration(left_s)}")
        return "  ".join(words)

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class JsonProgress:
    """Each call as one JSON line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, total: int, *, completed: int = 0) -> None:
        self._print(event="start", total=total, completed=completed)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._print(event="step", step=step, metrics=metrics)

    def message(self, text: str) -> None:
        self._print(event="message", text=text)

    def finish(self, summary: Mapping[str, float]) -> None:
        self._print(event="finish", metrics=summary)

    def close(self) -> None:
        self._stream.flush()

    def _print(self, **fields: Any) -> None:
        print(json.dumps(plain(fields)), file=self._stream, flush=True)


class QuietProgress:
    """Messages that are warnings, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def start(self, total: int, *, completed: int = 0) -> None:
        pass

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def message(self, text: str) -> None:
        if text.startswith("warning"):
            print(inert(text), file=self._stream, flush=True)

    def finish(self, summary: Mapping[str, float]) -> None:
        pass

    def close(self) -> None:
        pass


def headline(metrics: Mapping[str, float]) -> list[tuple[str, str]]:
    """Label and number of the metrics that people watch, in a fixed order; those that are missing are left out."""
    found = []
    for label, names, pattern in HEADLINES:
        value = next((metrics[name] for name in names if name in metrics), None)
        if value is not None:
            found.append((label, pattern.format(value)))
    return found


def finish_line(pace: Pace, summary: Mapping[str, float]) -> str:
    words = [f"done: {pace.total} steps in {duration(pace.elapsed_s())}"]
    return "  ".join([*words, *(f"{label} {text}" for label, text in headline(summary))])


def duration(seconds: float) -> str:
    """`42s`, `3m20s`, `2h05m`, `1d04h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
