"""The config of a job as commands and the console compare and show it."""

from __future__ import annotations

from mmrl.config.loading import LoadedConfig, build_config
from mmrl.jobs.records import Job


def config_of(job: Job) -> LoadedConfig:
    """What an earlier version stored and nothing reads today is left out. Raises ConfigError for what else today's
    config classes refuse; the job may be older than they are."""
    return build_config(job.config, source=f"{job.name} {job.short_id}", is_stored=True)
