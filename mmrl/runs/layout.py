"""Names of the folders and files of a run directory, and how a run is found.

config.yaml   owner
attempt-1/    events.jsonl  metrics.jsonl  config.yaml  logs/  samples/train-000010.parquet
images/ab/<sha256>.png      or .jpg; shared by the attempts
checkpoints/step-000100/    manifest.json, written last
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime
from pathlib import Path

from mmrl.config.base import home
from mmrl.errors import NotFoundError
from mmrl.runs.disk import writing

CONFIG_FILE = "config.yaml"
OWNER_FILE = "owner"
EVENTS_FILE = "events.jsonl"
METRICS_FILE = "metrics.jsonl"
MANIFEST_FILE = "manifest.json"
STOP_FILE = "stop"

_ATTEMPT = re.compile(r"attempt-([1-9]\d*)")
_SHARD = re.compile(r"([a-z0-9][a-z0-9_-]*)-(\d{6,})\.parquet")
_CHECKPOINT = re.compile(r"step-(\d{6,})")
_MAX_NAME_BYTES = 160


def attempt_dir(run_dir: Path, attempt: int) -> Path:
    return run_dir / f"attempt-{attempt}"


def image_path(run_dir: Path, sha256: str, suffix: str) -> Path:
    return run_dir / "images" / sha256[:2] / f"{sha256}{suffix}"


def checkpoints_dir(run_dir: Path) -> Path:
    return run_dir / "checkpoints"


def checkpoint_dir(run_dir: Path, step: int) -> Path:
    return checkpoints_dir(run_dir) / f"step-{step:06d}"


def shard_name(split: str, step: int) -> str:
    """Raises ValueError for a split that is no plain lower-case word, which could leave the folder."""
    name = f"{split}-{step:06d}.parquet"
    if not _SHARD.fullmatch(name):
        raise ValueError(f"split {split!r} at step {step}: a split is lower-case letters, digits, '-' and '_'")
    return name


def parse_shard_name(name: str) -> tuple[str, int] | None:
    """Split and step of a finished shard; None for any other file, such as one still being written."""
    match = _SHARD.fullmatch(name)
    return (match[1], int(match[2])) if match else None


def parse_checkpoint_name(name: str) -> int | None:
    match = _CHECKPOINT.fullmatch(name)
    return int(match[1]) if match else None


def attempts(run_dir: Path) -> list[int]:
    """The numbers of the attempts, ascending."""
    if not run_dir.is_dir():
        return []
    matches = (_ATTEMPT.fullmatch(entry.name) for entry in run_dir.iterdir() if entry.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def was_begun(run_dir: Path, attempt: int) -> bool:
    """Whether a trainer began the attempt; a supervisor makes its folder before that."""
    return (attempt_dir(run_dir, attempt) / EVENTS_FILE).exists()


def is_run(path: Path) -> bool:
    """Whether the folder is a run directory: an attempt was begun in it."""
    return bool(attempts(path))


def is_stored_config(path: Path) -> bool:
    """Whether mmrl wrote the file: the config of a run, of one of its attempts or of a checkpoint."""
    folder = path.absolute().parent
    attempt = folder.parent if folder.name == "job" else folder
    is_part = _ATTEMPT.fullmatch(attempt.name) is not None or parse_checkpoint_name(folder.name) is not None
    return path.name == CONFIG_FILE and (is_part or is_run(folder))


def resolve_run(text: str) -> Path:
    """The run directory that a user named: a path, the name of a folder under `home()/runs`, or a config's name where
    one folder alone is `NAME-date-time`, or NAME and the end of a job's id.

    Raises NotFoundError that names the nearest runs.
    """
    path = Path(text).expanduser()
    named = home() / "runs" / text
    for candidate in (path, named):
        if is_run(candidate):
            return candidate
    if path.exists():
        raise NotFoundError(f"{path} is not a run: it holds no attempt-1 folder; give a run directory or a run's name")
    own = re.compile(re.escape(text) + r"-(\d{8}-\d{6}(-\d+)?|[0-9a-f]{8})")
    dated = [name for name in run_names() if own.fullmatch(name)]
    if len(dated) == 1:
        return home() / "runs" / dated[0]
    if dated:
        raise NotFoundError(f"{len(dated)} runs are named {text!r}; give one of: {', '.join(dated[-5:])}")
    raise NotFoundError(f"no run {text!r}, neither as a path nor under {home() / 'runs'}; {_suggestion(text)}")


def run_names() -> list[str]:
    """The names of the runs under `home()/runs`, sorted."""
    folder = home() / "runs"
    return sorted(entry.name for entry in folder.iterdir() if is_run(entry)) if folder.is_dir() else []


def _suggestion(text: str) -> str:
    names = run_names()
    near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
    if near:
        return f"nearest: {', '.join(near)}"
    if names:
        return f"runs there: {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return "there are no runs there yet; give the path of a run directory"


def new_run_dir(name: str) -> Path:
    """Makes a folder under MMRL_HOME/runs, named after the run and the time (UTC), and no two callers get the same.

    Raises RunFailedError where it cannot be made.
    """
    base = home() / "runs" / f"{folder_name(name)}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder, number = base, 2
    with writing(folder):
        base.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                folder.mkdir()
            except FileExistsError:
                folder, number = base.with_name(f"{base.name}-{number}"), number + 1
            else:
                return folder


def folder_name(name: str) -> str:
    """A run's name as the name of a folder: what is no letter, digit, `.`, `-` or `_` becomes `-`, and what is beyond
    _MAX_NAME_BYTES is cut off: a filesystem takes 255 with what is put behind it."""
    cut = re.sub(r"[^\w.-]+", "-", name).encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
    return cut.strip("-.") or "run"
