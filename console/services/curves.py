"""Curves of runs out of the job database: over steps or over time, a few hundred points each, smoothed where asked.

What is missing stays missing: a value that was no finite number, and steps that nothing was written of, break a line.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

from console.services.pace import STEP_TIMER
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job, MetricPoint

Axis = Literal["step", "time"]
MAX_POINTS = 400
_GAP = 3.0
"""A distance between two points so many times the usual one is a gap."""


@dataclass(frozen=True)
class CurvePoint:
    """x: the step, or hours of running. value: None where there is none; then low and high are None too.

    low, high: the least and the largest of the values that the point stands for. smooth: the smoothed value.
    """

    x: float
    step: int
    value: float | None
    low: float | None
    high: float | None
    smooth: float | None


@dataclass(frozen=True)
class Curve:
    """One metric of one run. is_thinned: points are means over several steps."""

    job: Job
    key: str
    points: tuple[CurvePoint, ...]
    is_thinned: bool

    @property
    def last(self) -> CurvePoint | None:
        """The last point that has a value."""
        return next((point for point in reversed(self.points) if point.value is not None), None)


@dataclass(frozen=True)
class CurveSet:
    """curves: by metric, those of the runs that have it, in their order. without_time: runs that cannot be drawn over
    time, since they do not time their steps."""

    curves: dict[str, list[Curve]]
    without_time: tuple[Job, ...] = ()


def read_curves(
    jobs: JobReads, runs: Sequence[Job], keys: Iterable[str], *, axis: Axis = "step", smoothing: float = 0.0
) -> CurveSet:
    """smoothing: from 0, none, up to 1: the weight of what came before in an exponential mean over points."""
    wanted = list(dict.fromkeys(keys))
    curves: dict[str, list[Curve]] = {key: [] for key in wanted}
    without_time = []
    for job in runs:
        found = jobs.metrics(job.id, wanted, MAX_POINTS)
        clock = StepClock.of(jobs, job) if axis == "time" else None
        if axis == "time" and clock is None:
            without_time.append(job)
            continue
        for key in wanted:
            if found[key]:
                curves[key].append(_curve(job, key, found[key], clock, smoothing))
    return CurveSet({key: each for key, each in curves.items() if each}, tuple(without_time))


@dataclass(frozen=True)
class StepClock:
    """Hours of running at the end of a step, added up from the seconds of its steps: what was done twice, waited for or
    paused does not count."""

    steps: tuple[int, ...]
    hours: tuple[float, ...]

    @classmethod
    def of(cls, jobs: JobReads, job: Job) -> StepClock | None:
        """None for a run that does not time its steps."""
        steps, hours, total_s, last = [], [], 0.0, 0
        for point in jobs.metrics(job.id, [STEP_TIMER], MAX_POINTS)[STEP_TIMER]:
            if point.value is not None:
                total_s += point.value * max(1, point.step - last)
                steps.append(point.step)
                hours.append(total_s / 3600)
            last = point.step
        return cls(tuple(steps), tuple(hours)) if steps else None

    def at(self, step: int) -> float:
        """Between two steps that are known, in proportion."""
        place = bisect_right(self.steps, step)
        if place == 0:
            return self.hours[0] * max(0, step) / max(1, self.steps[0])
        before, hours = self.steps[place - 1], self.hours[place - 1]
        if place == len(self.steps):
            return hours
        share = (step - before) / (self.steps[place] - before)
        return hours + share * (self.hours[place] - hours)


def with_gaps(points: Sequence[MetricPoint]) -> list[MetricPoint]:
    """The points, and one without a value in each gap, so that no line is drawn across it."""
    distances = [later.step - point.step for point, later in pairwise(points)]
    if not distances:
        return list(points)
    usual = median(distances)
    found = [points[0]]
    for point, distance in zip(points[1:], distances, strict=True):
        if distance > _GAP * usual:
            found.append(MetricPoint(point.step - round(distance / 2), None, None, None, point.attempt))
        found.append(point)
    return found


def smoothed(values: Sequence[float | None], weight: float) -> list[float | None]:
    """The exponential mean of the values so far, without the pull of the start towards zero; None stays None."""
    mean, norm = 0.0, 0.0
    found: list[float | None] = []
    for value in values:
        if value is None:
            found.append(None)
            continue
        mean = weight * mean + (1 - weight) * value
        norm = weight * norm + (1 - weight)
        found.append(mean / norm)
    return found


def _curve(job: Job, key: str, raw: Sequence[MetricPoint], clock: StepClock | None, smoothing: float) -> Curve:
    points = with_gaps(raw)
    smooth = smoothed([point.value for point in points], smoothing)
    drawn = [
        CurvePoint(
            x=float(point.step) if clock is None else clock.at(point.step),
            step=point.step,
            value=point.value,
            low=point.low,
            high=point.high,
            smooth=mean,
        )
        for point, mean in zip(points, smooth, strict=True)
    ]
    return Curve(job, key, tuple(drawn), any(point.low != point.high for point in raw))
