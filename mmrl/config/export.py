"""Config of kind `export`: a checkpoint made a model folder, as a step of a pipeline."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel, PathText


class ExportedModelConfig(ConfigModel):
    path: PathText
    """The checkpoint, as RUN, RUN@STEP, RUN@best or its folder."""


class ExportSettings(ConfigModel):
    out: PathText | None = None
    """New or empty folder for the model; null puts it into the run directory, as `model`."""
    compare_answers: bool = True
    """Load what was written and compare its greedy answers with the checkpoint's."""


class ExportConfig(ConfigModel):
    name: str = Field(..., min_length=1)
    """Name of the run, for people."""
    kind: Literal["export"] = "export"
    """A checkpoint becomes a folder that `from_pretrained`, vLLM and the rewards load."""
    model: ExportedModelConfig
    """What is exported."""
    export: ExportSettings = ExportSettings()
    """Where to, and how it is checked."""
