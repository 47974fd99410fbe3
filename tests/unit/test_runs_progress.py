"""Live bar, plain lines, JSON and quiet."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from mmrl.runs.inert import inert
from mmrl.runs.progress import (
    JsonProgress,
    PlainProgress,
    ProgressReporter,
    QuietProgress,
    duration,
    headline,
    make_progress,
)
from mmrl.runs.progress_rich import RichProgress

METRICS = {
    "reward/mean": 0.7123,
    "eval/exact": 0.8,
    "actor/approx_kl": 0.00321,
    "response/length_mean": 12.04,
    "perf/tokens_per_s": 1234.4,
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_plain_lines_come_every_few_seconds_with_the_time_that_is_left() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, every_s=5.0, clock=clock)
    progress.start(10)
    for step in range(1, 11):
        clock.now += 2.0
        progress.step(step, {"reward/mean": step / 10})
    assert stream.getvalue().splitlines() == [
        "step 1/10  reward 0.100  eta 18s",
        "step 4/10  reward 0.400  eta 12s",
        "step 7/10  reward 0.700  eta 6s",
        "step 10/10  reward 1.000",
    ]


def test_an_evaluation_always_gets_its_line() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, clock=Clock())
    progress.start(100)
    progress.step(1, {"reward/mean": 0.5})
    progress.step(2, {"reward/mean": 0.5})
    progress.step(3, {"reward/mean": 0.5, "eval/reward": 0.25})
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()] == ["step 1/100", "step 3/100"]


def test_a_resumed_run_counts_only_its_own_steps_for_the_time_that_is_left() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock=clock)
    progress.start(100, completed=90)
    clock.now += 3.0
    progress.step(91, {})
    assert stream.getvalue() == "step 91/100  eta 27s\n"


def test_the_headline_takes_the_first_metric_of_each_label() -> None:
    assert headline(METRICS) == [
        ("reward", "0.712"),
        ("accuracy", "0.800"),
        ("kl", "0.0032"),
        ("length", "12.0"),
        ("tokens/s", "1234"),
    ]
    assert headline({"actor/kl_reference": 0.5, "actor/approx_kl": 0.1}) == [("kl", "0.5000")]


def test_the_end_is_told_in_one_line() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, clock=clock)
    progress.start(4)
    clock.now += 200.0
    progress.close()
    progress.finish({"reward/mean": 0.9})
    assert stream.getvalue() == "done: 4 steps in 3m20s  reward 0.900\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.4, "59s"), (59.6, "1m00s"), (3599, "59m59s"), (7500, "2h05m"), (100_800, "1d04h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_json_progress_is_one_object_a_line() -> None:
    stream = io.StringIO()
    progress = JsonProgress(stream)
    progress.start(2, completed=1)
    progress.message("warning: \x1b[31m")
    progress.step(2, {"loss": float("nan")})
    progress.finish({"loss": 1.0})
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"event": "start", "total": 2, "completed": 1},
        {"event": "message", "text": "warning: \x1b[31m"},
        {"event": "step", "step": 2, "metrics": {"loss": None}},
        {"event": "finish", "metrics": {"loss": 1.0}},
    ]
    assert "\x1b" not in stream.getvalue()


def test_quiet_progress_shows_warnings_only() -> None:
    stream = io.StringIO()
    progress = QuietProgress(stream)
    progress.start(2)
    progress.step(1, METRICS)
    progress.message("starts fresh")
    progress.message("warning: a reward failed")
    progress.finish(METRICS)
    assert stream.getvalue() == "warning: a reward failed\n"


def test_plain_lines_are_chosen_where_there_is_no_terminal() -> None:
    assert isinstance(make_progress(stream=io.StringIO()), PlainProgress)
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    assert isinstance(make_progress(stream=terminal), RichProgress)
    assert isinstance(make_progress("json"), JsonProgress)
    assert isinstance(make_progress("quiet"), QuietProgress)


def rich_progress(width: int) -> tuple[RichProgress, io.StringIO]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, highlight=False, markup=False, emoji=False)
    return RichProgress(stream, console=console), stream


def test_the_live_bar_shows_figures_and_keeps_those_of_the_last_evaluation() -> None:
    progress, stream = rich_progress(100)
    progress.start(3)
    progress.step(0, {"eval/exact": 0.25})
    progress.step(1, {"reward/mean": 0.5})
    last = stream.getvalue().rsplit("\x1b[2K", 1)[-1]
    assert "1/3" in last
    for figure in ("accuracy", "0.250", "reward", "0.500"):
        assert figure in last
    progress.close()
    progress.close()
    progress.finish({"reward/mean": 0.5})
    assert "done: 3 steps" in stream.getvalue()
    assert stream.getvalue().count("\x1b[?25h") == 1, "the cursor is shown again"


def test_the_live_bar_prints_messages_inert() -> None:
    progress, stream = rich_progress(60)
    progress.start(3)
    progress.message("warning: [bold]x[/bold] \x1b]0;title\x07 :smile:")
    assert r"warning: [bold]x[/bold] \x1b]0;title\x07 :smile:" in stream.getvalue()


@pytest.mark.parametrize("mode", ["rich", "plain", "json", "quiet"])
def test_a_failed_run_can_close_before_it_starts(mode: str) -> None:
    progress: ProgressReporter = make_progress(mode, stream=io.StringIO())  # type: ignore[arg-type]
    progress.message("loading")
    progress.close()


def test_text_is_inert_but_readable() -> None:
    assert inert("plain text") == "plain text"
    assert inert("two\nlines\tand tabs: 数字 é 👩‍🔬") == "two\nlines\tand tabs: 数字 é 👩‍🔬"
    assert inert("\x1b[2J\r\x9b\x00\u202ecod\ud800") == r"\x1b[2J\r\x9b\x00\u202ecod\ud800"
    assert inert("a\nb\tc", one_line=True) == r"a\nb\tc"
