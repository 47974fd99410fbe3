"""The folder of a user's own code that is sent to a Ray cluster: measured first, refused when it is too big."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.errors import ConfigError

EXCLUDES = (
    *(".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    *("checkpoints", "attempt-*", "runs", "wandb", "tensorboard", "mlruns", "*.egg-info"),
    *("*.safetensors", "*.pt", "*.pth", "*.bin", "*.ckpt", "*.gguf", "*.parquet", "*.arrow", "*.zip", "*.tar*"),
)
"""Names of files and folders, anywhere below, that are never sent: what is large and no code."""
MAX_BYTES = 100_000_000
_MOST_NAMED = 3


@dataclass(frozen=True)
class WorkingDir:
    """num_bytes, num_files: of what is sent. Made by `measure`."""

    path: Path
    num_bytes: int
    num_files: int
    excludes: tuple[str, ...] = EXCLUDES

    @classmethod
    def measure(cls, path: Path, *, excludes: tuple[str, ...] = EXCLUDES, max_bytes: int = MAX_BYTES) -> WorkingDir:
        """Raises ConfigError for what is no folder, and for one with more than `max_bytes`, naming what is largest."""
        if not path.is_dir():
            raise ConfigError(f"--working-dir: {path} is no folder; give the folder of your own code, or leave it out")
        sizes = {file: file.lstat().st_size for file in _files(path, excludes)}
        found = cls(path.absolute(), sum(sizes.values()), len(sizes), excludes)
        if found.num_bytes > max_bytes:
            raise ConfigError(
                f"--working-dir: {found} is more than the {max_bytes / 1e6:.0f} MB that are sent to a cluster; the "
                f"largest there: {_largest(path, sizes)}. Give a folder with code alone; data and models belong on "
                "storage that the cluster reaches"
            )
        return found

    def __str__(self) -> str:
        return f"{self.path} ({self.num_bytes / 1e6:.1f} MB in {self.num_files} files)"

    def runtime_env(self) -> dict[str, Any]:
        """For Ray: the folder and, in the words of .gitignore, what of it stays here."""
        return {"working_dir": str(self.path), "excludes": list(self.excludes)}


def _files(path: Path, excludes: tuple[str, ...]) -> Iterator[Path]:
    for folder, names, files in os.walk(path):
        names[:] = [name for name in names if not _is_excluded(name, excludes)]
        yield from (Path(folder) / name for name in files if not _is_excluded(name, excludes))


def _is_excluded(name: str, excludes: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in excludes)


def _largest(path: Path, sizes: dict[Path, int]) -> str:
    """The entries at the top that hold the most bytes."""
    totals: dict[str, int] = {}
    for file, size in sizes.items():
        top = file.relative_to(path).parts[0]
        totals[top] = totals.get(top, 0) + size
    first = sorted(totals.items(), key=lambda entry: -entry[1])[:_MOST_NAMED]
    return ", ".join(f"{name} ({size / 1e6:.1f} MB)" for name, size in first)
