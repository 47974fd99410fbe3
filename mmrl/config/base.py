"""The base of all config models and the field types that several of them share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def home() -> Path:
    """The folder that holds mmrl's state: `MMRL_HOME`, or `~/.mmrl`."""
    return Path(os.environ.get("MMRL_HOME") or "~/.mmrl").expanduser()


def expand_path(text: str) -> str:
    """`~` and `${MMRL_HOME}` (or any `${VARIABLE}` that is set) expanded; anything else as it is."""
    return os.path.expanduser(os.path.expandvars(text.replace("${MMRL_HOME}", str(home()))))


PathText = Annotated[str, AfterValidator(expand_path)]


class ConfigModel(BaseModel):
    """Frozen, unknown keys refused, each field with one line of meaning that forms show as help."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, use_attribute_docstrings=True)
