"""mmrl's commands as short-lived processes: for what needs torch, or would hold up a page.

A command runs in a session of its own, its output in files, under a deadline. What came of it is read from these files,
so that neither a reload of the page nor a restart of the console loses it; a command that outlives the console goes on.

    <root>/<key>/current         the folder of the newest start
    <root>/<key>/<start>/        task.json, stdout, stderr, and ended.json once it is over
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from mmrl.config.base import home
from mmrl.data.files import write_bytes
from mmrl.jobs.worker.processes import ProcessIdentity, identity_of

State = Literal["waiting", "running", "done", "failed"]
AT_ONCE = 2
"""Commands that run at the same time; others wait for a place."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_KEPT_FROM_COMMANDS = ("MMRL_DATABASE_URL", "MMRL_CONSOLE_")
_POLL_S = 0.05
_GRACE_S = 2.0
_TAIL_BYTES = 4000


@dataclass(frozen=True)
class Task:
    """A command as it stands. stamp: what it was asked about, told by whoever started it.

    data: the JSON that it printed, whatever its exit code. error: what went wrong, in the command's own words.
    progress: the last lines that it wrote to stderr. seconds: how long it ran, or has been running or waiting.
    """

    key: str
    stamp: str
    state: State
    started_at: float
    seconds: float
    exit_code: int | None = None
    data: Any = None
    error: str | None = None
    progress: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed")


class Processes:
    """Shared by all sessions of a console."""

    def __init__(self, root: Path | None = None, *, at_once: int = AT_ONCE) -> None:
        self._root = root if root is not None else home() / "console" / "processes"
        self._slots = threading.BoundedSemaphore(at_once)
        self._watches: dict[str, _Watch] = {}
        self._lock = threading.Lock()

    def start(self, key: str, words: Sequence[str], *, deadline_s: float, stamp: str = "") -> Task:
        """Starts `mmrl WORDS` under a key. One that runs already for the same stamp goes on; for another it is ended.

        deadline_s: counts from when it gets its place.
        """
        assert _KEY.fullmatch(key), key
        with self._lock:
            earlier = self._watches.get(key)
            if earlier is not None and earlier.is_alive():
                if earlier.stamp == stamp:
                    return _read(earlier.folder, key) or _just_started(key, stamp)
                earlier.stop()
            folder = self._root / key / uuid4().hex
            watch = _Watch(folder, words, stamp=stamp, deadline_s=deadline_s, slots=self._slots)
            self._watches[key] = watch
            watch.start()
            write_bytes(folder.parent / "current", folder.name.encode())
        for old in folder.parent.iterdir():
            if old.is_dir() and old != folder:
                shutil.rmtree(old, ignore_errors=True)
        return self.get(key) or _just_started(key, stamp)

    def get(self, key: str) -> Task | None:
        """What became of the newest start under a key; None where there was none."""
        assert _KEY.fullmatch(key), key
        try:
            folder = self._root / key / (self._root / key / "current").read_text(encoding="utf-8")
        except OSError:
            return None
        watch = self._watches.get(key)
        is_watched = watch is not None and watch.folder == folder and watch.is_alive()
        return _read(folder, key, is_watched=is_watched)

    def run(self, key: str, words: Sequence[str], *, deadline_s: float) -> Task:
        """Starts a command and waits until it is over."""
        task = self.start(key, words, deadline_s=deadline_s)
        while not task.is_over:
            time.sleep(_POLL_S)
            task = self.get(key) or task
        return task

    def stop(self, key: str) -> None:
        """Ends the command of a key, if one runs, and forgets what came of it."""
        with self._lock:
            watch = self._watches.pop(key, None)
        if watch is not None and watch.is_alive():
            watch.stop()
        shutil.rmtree(self._root / key, ignore_errors=True)


class _Watch(threading.Thread):
    """Starts one command when there is a place, and sees to its end."""

    def __init__(
        self, folder: Path, words: Sequence[str], *, stamp: str, deadline_s: float, slots: threading.BoundedSemaphore
    ) -> None:
        super().__init__(name=f"mmrl {words[0]}", daemon=True)
        self.folder, self.stamp = folder, stamp
        self._words, self._deadline_s, self._slots = list(words), deadline_s, slots
        self._stop_asked = threading.Event()
        self._task = {"stamp": stamp, "words": self._words, "started_at": time.time(), "deadline_s": deadline_s}
        folder.mkdir(parents=True)
        _write_json(folder / "task.json", self._task)

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        while not self._slots.acquire(timeout=_POLL_S):
            if self._stop_asked.is_set():
                return
        try:
            with contextlib.suppress(FileNotFoundError):  # a newer start has taken the folder away
                self._run()
        finally:
            self._slots.release()

    def _run(self) -> None:
        if self._stop_asked.is_set():
            return
        with (self.folder / "stdout").open("wb") as stdout, (self.folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "mmrl", *self._words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=_environment(),
                start_new_session=True,
            )
        begun = time.monotonic()
        started = {"started_at": time.time(), "pid": process.pid, "identity": _identity(process.pid)}
        _write_json(self.folder / "task.json", self._task | started)
        is_late = False
        while process.poll() is None:
            is_late = time.monotonic() - begun > self._deadline_s
            if is_late or self._stop_asked.wait(_POLL_S):
                _end_group(process)
                break
        ended = {"exit_code": process.wait(), "seconds": time.monotonic() - begun, "is_late": is_late}
        _write_json(self.folder / "ended.json", ended)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, some time to clean up, SIGKILL; to all that the command started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    """Commands may run code of users, so they know neither the database nor the console's secrets."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_KEPT_FROM_COMMANDS)}
    return kept | {"PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}


def _identity(pid: int) -> dict[str, Any] | None:
    found = identity_of(pid)
    return None if found is None else {"pid": pid, "start_time": found.start_time, "boot_id": found.boot_id}


def _just_started(key: str, stamp: str) -> Task:
    return Task(key, stamp, "waiting", time.time(), 0.0)


def _read(folder: Path, key: str, *, is_watched: bool = True) -> Task | None:
    """The task as its files tell it; None where a newer start has taken them away."""
    task = _read_json(folder / "task.json")
    if task is None:
        return None
    ended = _read_json(folder / "ended.json")
    started_at = float(task["started_at"])
    progress = tuple(_tail(folder / "stderr"))
    if ended is not None:
        return _over(folder, key, task, ended, progress)
    age = time.time() - started_at
    identity = task.get("identity")
    if is_watched or (identity is not None and ProcessIdentity(**identity).is_alive and age < task["deadline_s"]):
        state: State = "running" if "pid" in task else "waiting"
        return Task(key, task["stamp"], state, started_at, age, progress=progress)
    return _over(folder, key, task, {"exit_code": None, "seconds": age, "is_late": False}, progress)


def _over(folder: Path, key: str, task: dict[str, Any], ended: dict[str, Any], progress: tuple[str, ...]) -> Task:
    code, data = ended["exit_code"], _read_json(folder / "stdout")
    error = None if data is not None or code == 0 else _error(folder, task, ended)
    return Task(
        key=key,
        stamp=task["stamp"],
        state="failed" if error is not None else "done",
        started_at=float(task["started_at"]),
        seconds=float(ended["seconds"]),
        exit_code=code,
        data=data,
        error=error,
        progress=progress,
    )


def _error(folder: Path, task: dict[str, Any], ended: dict[str, Any]) -> str:
    if ended["is_late"]:
        return (
            f"this took more than {task['deadline_s']:.0f} seconds and was ended; try it on fewer rows, or in a shell"
        )
    if ended["exit_code"] is None:
        return "this was interrupted before it was done; start it again"
    text = _text(folder / "stderr")
    _, found, message = text.rpartition("\nerror: ") if "\nerror: " in text else text.partition("error: ")
    if found:
        return message.strip()
    return f"the command ended with code {ended['exit_code']} and said nothing; look at the console's machine"


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return [line.rpartition("\r")[2] for line in text.splitlines() if line.strip()][-8:]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def _write_json(path: Path, data: dict[str, Any]) -> None:
    write_bytes(path, json.dumps(data).encode())
