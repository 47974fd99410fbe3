"""Config of kind `noop`: a run that trains nothing, for tests, probes of a cluster and benchmarks of the job system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel, PathText


class NoopSettings(ConfigModel):
    """What the run does in place of training. It begins like any other and writes a run directory of the same form."""

    steps: int = Field(1, ge=0)
    """Steps of the loop."""
    step_s: float = Field(0.0, ge=0)
    """Seconds that each step sleeps."""
    start_s: float = Field(0.0, ge=0)
    """Seconds that pass before the first step, as if a model were loaded."""
    hold_at_step: int | None = Field(None, ge=1)
    """The step before which the run waits for hold_until."""
    hold_until: PathText | None = None
    """A file; the run waits until it is there."""
    metrics_per_step: int = Field(1, ge=0)
    """Metrics that each step writes: noop/value, noop/value_1 …"""
    samples_per_step: int = Field(0, ge=0)
    """Responses that each step keeps as samples."""
    checkpoint_every: int = Field(0, ge=0)
    """Steps between checkpoints; 0 writes none, but for the one of a stop on request."""
    checkpoint_mb: float = Field(0.0, ge=0)
    """Size of the file that stands for the model in a checkpoint, in MB."""
    checkpoint_s: float = Field(0.0, ge=0)
    """Seconds between the first byte of a checkpoint and its name."""
    stderr_mb: float = Field(0.0, ge=0)
    """Text that is written to stderr before the first step, in MB."""
    exit_code: int = Field(0, ge=0, le=255)
    """Exit code of the process; any but 0 ends the run as failed."""
    fail_at_step: int | None = Field(None, ge=1)
    """The step at whose begin the run ends with exit_code, and fails; null ends it after the last step."""
    fail_attempts: int | None = Field(None, ge=1)
    """Only so many first attempts fail; null lets all of them fail."""
    failure: str = "noop was told to fail"
    """Message of the failure."""
    kill_at_step: int | None = Field(None, ge=1)
    """The step at whose begin the process kills itself with SIGKILL; fail_attempts counts for this too."""
    ignore_sigterm: bool = False
    """Pay no heed to SIGTERM."""
    starts_file: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]+\.jsonl$")
    """Name, NAME.jsonl, of a file beside the run directory to which each process that begins the run first appends a
    line of JSON, its run directory, attempt and process id: what was started, by its own word."""
    children: int = Field(0, ge=0)
    """Processes that are started beside the run and outlive it, SIGTERM included, until they are killed."""
    mirror_every_s: float = Field(30.0, gt=0)
    """As record.mirror_every_s of other kinds."""


class NoopConfig(ConfigModel):
    name: str = Field(..., min_length=1)
    """Name of the run, for people."""
    kind: Literal["noop"] = "noop"
    """A run that trains nothing."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the numbers that it makes up."""
    noop: NoopSettings = NoopSettings()
    """What the run does in place of training."""

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> NoopConfig:
        """The config in a YAML file with `key=value` overrides. Raises as `load_config` does, and ConfigError for
        another kind."""
        from mmrl.config.loading import load_config

        return load_config(path, overrides).of(cls)
