"""Several runs side by side: the settings in which they differ, and where each metric ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.config.comparing import diff_configs
from mmrl.config.dump import value_text
from mmrl.config.loading import LoadedConfig
from mmrl.errors import ConfigError
from mmrl.jobs.configs import config_of
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.records import Job

ABSENT = "—"


@dataclass(frozen=True)
class Differences:
    """rows: setting -> its value in each run, in the order of the runs; `ABSENT` where a run has no such setting.

    unreadable: the runs whose config this version refuses, with why; they are in no row.
    """

    runs: tuple[Job, ...]
    rows: dict[str, tuple[str, ...]]
    unreadable: tuple[tuple[Job, str], ...] = ()


@dataclass(frozen=True)
class FinalMetrics:
    """rows: metric -> its last value and the step of that in each run; None where the run has none."""

    rows: dict[str, tuple[tuple[float | None, int] | None, ...]]


def config_differences(runs: Sequence[Job]) -> Differences:
    """The settings that are not the same in all runs, defaults included, as `mmrl config diff` tells them."""
    readable: list[tuple[Job, LoadedConfig]] = []
    unreadable = []
    for job in runs:
        try:
            readable.append((job, config_of(job)))
        except ConfigError as error:
            unreadable.append((job, str(error)))
    jobs = tuple(job for job, _ in readable)
    if len(readable) < 2:
        return Differences(jobs, {}, tuple(unreadable))
    first = readable[0][1]
    keys = dict.fromkeys(each.key for _, other in readable[1:] for each in diff_configs(first, other))
    values = [{leaf.key: leaf.value for leaf in loaded.leaves} for _, loaded in readable]
    rows = {key: tuple(_shown(one, key) for one in values) for key in keys}
    return Differences(jobs, rows, tuple(unreadable))


def final_metrics(jobs: JobReads, runs: Sequence[Job]) -> FinalMetrics:
    """Metrics by name."""
    found = [jobs.last_values(job.id) for job in runs]
    keys = sorted({key for each in found for key in each})
    return FinalMetrics(
        {key: tuple((each[key].value, each[key].step) if key in each else None for each in found) for key in keys}
    )


def _shown(values: dict[str, Any], key: str) -> str:
    return value_text(values[key]) if key in values else ABSENT
