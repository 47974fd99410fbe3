"""How workers and leases keep time, and what members may do: `MMRL_HOME/jobs.yaml` and `MMRL_JOBS_<FIELD>`.

A variable of the environment is put over the file, the file over the defaults.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path

from pydantic import Field, model_validator

from mmrl.config.base import ConfigModel, home
from mmrl.config.settings_file import read_settings
from mmrl.errors import ConfigError

FILE_NAME = "jobs.yaml"
_PREFIX = "MMRL_JOBS_"


class JobsSettings(ConfigModel):
    lease_s: float = Field(60.0, gt=0)
    """A worker that has not beaten for so long has lost its jobs."""
    beat_s: float = Field(10.0, gt=0)
    """Between two beats of a worker."""
    grace_s: float = Field(60.0, ge=0)
    """Between asking a run to stop and killing it: time for a last checkpoint."""
    poll_s: float = Field(1.0, gt=0)
    """Between two looks for work."""
    retry_delay_s: float = Field(10.0, ge=0)
    """Wait before the first automatic retry; each further one waits twice as long."""
    max_retry_delay_s: float = Field(600.0, ge=0)
    """Longest wait before an automatic retry."""
    hold_back_s: float = Field(600.0, ge=0)
    """A job that a worker could hold if it were empty, and that has waited for so long, is not overtaken on that
    worker any more: the worker takes nothing else until it fits."""
    lock_wait_s: float = Field(60.0, gt=0)
    """How long a write waits for the database's lock before it gives up."""
    members_may_run_code: bool = False
    """Let members submit configs that run code of their own (reward functions, stages, models with remote code), read
    secrets (`env:NAME`, `file:PATH`) or ask servers (judges, remote rewards)."""
    members_control_all: bool = False
    """Let members cancel, pause, resume and retry the jobs of others."""

    @model_validator(mode="after")
    def _beats_within_lease(self) -> JobsSettings:
        if self.beat_s * 2 > self.lease_s:
            raise ValueError(
                f"beat_s ({self.beat_s:g}) must be at most half of lease_s ({self.lease_s:g}), so that one late beat "
                "loses no job; raise lease_s or lower beat_s"
            )
        return self


def load_settings(path: Path | None = None) -> JobsSettings:
    """The settings from the file (default: `jobs.yaml` in mmrl's home, which need not exist) and the environment.

    Raises ConfigError that names the file or the variable, also one of a setting that there is not.
    """
    known = sorted(name.upper() for name in JobsSettings.model_fields)
    given = sorted(name.removeprefix(_PREFIX) for name in os.environ if name.startswith(_PREFIX))
    for unknown in (name for name in given if name not in known):
        near = get_close_matches(unknown, known, n=1)
        hint = (
            f"did you mean {_PREFIX}{near[0]}?" if near else f"known are {', '.join(_PREFIX + name for name in known)}"
        )
        raise ConfigError(f"the environment sets {_PREFIX}{unknown}, which is no setting of jobs; {hint}")
    file = path if path is not None else home() / FILE_NAME
    return read_settings(JobsSettings, file, prefix=_PREFIX, what="jobs")
