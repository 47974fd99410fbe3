"""Which code runs: the commit of the checkout that mmrl is imported from, or the version of the package."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@cache
def code_version() -> str:
    """`0.1.0+git.<commit>`, with `.dirty` where files differ from it; `0.1.0` where mmrl is no checkout."""
    package = version("mmrl")
    commit = _git("rev-parse", "--short=12", "HEAD") if (_PACKAGE.parent / ".git").exists() else ""
    if not commit:
        return package
    is_dirty = bool(_git("status", "--porcelain", "--untracked-files=no", "--", str(_PACKAGE)))
    return f"{package}+git.{commit}{'.dirty' if is_dirty else ''}"


def _git(*words: str) -> str:
    command = ["git", "-C", str(_PACKAGE), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
