"""A live bar with the run's headline figures below it, on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from mmrl.runs.inert import inert
from mmrl.runs.progress import Pace, duration, finish_line, headline


class RichProgress:
    """Messages scroll above the bar. Figures of a step that lacks them, such as those of evaluation, stay on show."""

    def __init__(self, stream: TextIO, *, console: Console | None = None) -> None:
        self._console = console or Console(file=stream, highlight=False, markup=False, emoji=False)
        self._pace = Pace()
        self._bar = Progress(
            TextColumn("step"), MofNCompleteColumn(), BarColumn(bar_width=None), TextColumn("{task.fields[left]}")
        )
        self._task = self._bar.add_task("steps", total=None, left="")
        self._latest: dict[str, float] = {}
        self._live: Live | None = None

    def start(self, total: int, *, completed: int = 0) -> None:
        self._pace.start(total, completed)
        self._bar.update(self._task, total=total, completed=completed)
        self._live = Live(self._view(), console=self._console, auto_refresh=False, redirect_stdout=False)
        self._live.start(refresh=True)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._latest.update(metrics)
        left_s = self._pace.left_s(step)
        left = "" if left_s is None else f"{duration(self._pace.elapsed_s())}, {duration(left_s)} left"
        self._bar.update(self._task, completed=step, left=left)
        if self._live is not None:
            self._live.update(self._view(), refresh=True)

    def message(self, text: str) -> None:
        style = "yellow" if text.startswith("warning") else ""
        self._console.print(Text(inert(text), style=style))

    def finish(self, summary: Mapping[str, float]) -> None:
        self.close()
        self._console.print(Text(finish_line(self._pace, summary)))

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _view(self) -> Group:
        figures = Text()
        for label, text in headline(self._latest):
            figures.append(f"{label} ", style="dim")
            figures.append(f"{text}  ", style="bold")
        return Group(self._bar.get_renderable(), figures)
