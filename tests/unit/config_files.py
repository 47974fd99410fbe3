"""Small config files for the tests of config and commands."""

from __future__ import annotations

from pathlib import Path

MINIMAL = """\
name: digits
model: {path: some/model}
data: {train: digits}
reward: [{type: exact}]
"""


def write_config(folder: Path, text: str = "", *, name: str = "run.yaml", base: str = MINIMAL) -> Path:
    """The minimal config with `text` after it; lines of `text` are counted from 5 on."""
    path = folder / name
    path.write_text(base + text, encoding="utf-8")
    return path
