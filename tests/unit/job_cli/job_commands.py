"""Jobs submitted by the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., tuple[int, str, str]]
"""Calls a command and gives its exit code, stdout and stderr."""


def submitted(mmrl: Run, config: Path, *words: object) -> dict[str, Any]:
    code, out, err = mmrl("job", "submit", config, *words, "--json")
    assert code == 0, err
    job: dict[str, Any] = json.loads(out)
    return job
