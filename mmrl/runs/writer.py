"""The trainer's hand on its run directory. One writer an attempt; what it wrote is never changed again."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from mmrl.config.record import RecordConfig
from mmrl.errors import ConflictError, RunFailedError
from mmrl.runs import layout
from mmrl.runs.config_file import changed_settings, identity_conflict
from mmrl.runs.disk import JsonLines, plain, write_whole, writing
from mmrl.runs.images import keep_image
from mmrl.runs.inert import without_blobs
from mmrl.runs.ownership import AttemptClaim, new_token, read_owner, take_ownership
from mmrl.runs.reader import RunReader
from mmrl.runs.recording import choose_groups
from mmrl.runs.records import StateName, TokenRecord
from mmrl.types import ImageRef, ScoredGroup

_UNDER_WAY = ("starting", "running")


class RunWriter:
    """Writes events, metrics and samples of one attempt. Made by `RunWriter.create`.

    Every method that writes raises RunFailedError, with the path and the free bytes, when the disk refuses.
    """

    def __init__(self, run_dir: Path, *, attempt: int, token: str, record: RecordConfig) -> None:
        self.run_dir = run_dir
        self.attempt = attempt
        self.attempt_dir = layout.attempt_dir(run_dir, attempt)
        self.logs_dir = self.attempt_dir / "logs"
        self.checkpoints_dir = layout.checkpoints_dir(run_dir)
        self._token = token
        self._record = record
        self._events = JsonLines(self.attempt_dir / layout.EVENTS_FILE)
        self._metrics = JsonLines(self.attempt_dir / layout.METRICS_FILE)
        self._warned: set[str] = set()

    @classmethod
    def create(
        cls,
        run_dir: Path,
        *,
        config_yaml: str,
        resume: bool,
        record: RecordConfig | None = None,
        claim: AttemptClaim | None = None,
    ) -> RunWriter:
        """Begins an attempt: the first in a new or empty folder, the next one when resuming.

        config_yaml: the resolved config with secrets removed. record: what is kept of the samples. claim: number and
        token where a supervisor gives them.
        Raises ConflictError for a run directory when not resuming, for the run of another config (see
        `mmrl.runs.config_file`), for a folder that holds something else, and for a claim that came too late.
        """
        run_dir = run_dir.absolute()
        earlier = _check_folder(run_dir, config_yaml, resume=resume)
        if claim is None:
            claim = AttemptClaim(_next_attempt(run_dir, may_be_later=resume), new_token())
        attempt, folder = claim.attempt, layout.attempt_dir(run_dir, claim.attempt)
        take_ownership(run_dir, claim, pid=os.getpid())
        with writing(folder):
            for name in ("logs", "samples"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            layout.checkpoints_dir(run_dir).mkdir(exist_ok=True)
            _begin_once(run_dir, attempt)
        for path in (run_dir / layout.CONFIG_FILE, folder / layout.CONFIG_FILE):
            write_whole(path, config_yaml.encode())
        writer = cls(run_dir, attempt=attempt, token=claim.token, record=record or RecordConfig())
        writer.event("state", state="starting", pid=os.getpid(), host=socket.gethostname())
        changes = changed_settings(earlier, config_yaml) if earlier is not None else {}
        if changes:
            writer.event(
                "config_changed", message=f"resumed with other settings: {', '.join(changes)}", changes=changes
            )
        return writer

    @property
    def config_yaml(self) -> bytes:
        """The config of this attempt, as it lies in its folder."""
        return (self.attempt_dir / layout.CONFIG_FILE).read_bytes()

    def begin(self, step: int, *, total_steps: int | None = None) -> None:
        """The loop starts with `step` steps done: 0, or the step of the checkpoint that it goes on from.

        Rows of earlier attempts beyond that step no longer count.
        """
        self.event("state", state="running", step=step, total_steps=total_steps)

    def event(self, kind: str, **fields: Any) -> None:
        """One line with the UTC time: kind `state`, `progress`, `warning`, `failure`, `checkpoint` or another word.

        Messages of rewards, judges and libraries may hold whole images as text; their digests are written.
        """
        told = {name: without_blobs(value) if isinstance(value, str) else value for name, value in fields.items()}
        self._events.append({"time": _now(), "kind": kind, **told})

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """One line. A value that is no finite number is written as null; the first such of a name is a warning."""
        reserved = {"step", "time"} & values.keys()
        if reserved:
            raise RunFailedError(
                f"a metric cannot be named {sorted(reserved)[0]!r}; call it `train/{sorted(reserved)[0]}`"
            )
        row = {name: plain(value) for name, value in values.items()}
        self._warn_of_lost({name: values[name] for name, value in row.items() if value is None}, step)
        self._metrics.append({"step": step, "time": _now(), **row})

    def samples(
        self,
        step: int,
        split: str,
        groups: Sequence[ScoredGroup],
        *,
        store_path: Callable[[ImageRef], Path],
        tokens: Sequence[Sequence[TokenRecord]] | None = None,
    ) -> Path | None:
        """Writes the step's groups as one parquet shard and links their images; None when none is due.

        store_path: where an image lies in the image store. tokens[i][j]: what is known of response j of group i.
        Raises ConflictError for a step and split that this attempt has written already.
        """
        if not groups or (split == "train" and step % self._record.every):
            return None
        from mmrl.runs.shards import encode_shard

        path = self.attempt_dir / "samples" / layout.shard_name(split, step)
        if path.exists():
            raise ConflictError(f"{path} exists; the samples of a step are written once and never changed")
        selection = choose_groups(groups, step=step, budget=self._record.full_tokens_per_step)
        for index in selection.reasons:
            self._keep_images(groups[index].group.sample.images, store_path, step=step)
        data = encode_shard(
            groups,
            selection,
            attempt=self.attempt,
            split=split,
            step=step,
            token_logprobs=self._record.token_logprobs,
            tokens=tokens,
        )
        write_whole(path, data)
        return path

    def owns(self) -> bool:
        """Whether this attempt may still write checkpoints: no later one has put its token into the run directory."""
        owner = read_owner(self.run_dir)
        return owner is not None and owner.get("token") == self._token

    def close(self, state: StateName) -> None:
        """Writes how the attempt ended and closes its files, which happens even where the line cannot be written."""
        try:
            self.event("state", state=state)
        finally:
            self._events.close()
            self._metrics.close()

    def _keep_images(self, images: Sequence[ImageRef], store_path: Callable[[ImageRef], Path], *, step: int) -> None:
        for image in images:
            try:
                keep_image(self.run_dir, image.sha256, store_path(image))
            except FileNotFoundError as error:
                self._warn_once(f"image {error.filename} is gone from the image store; samples name it only", step)

    def _warn_of_lost(self, lost: Mapping[str, float], step: int) -> None:
        for name, value in lost.items():
            self._warn_once(f"metric {name} is not a finite number and is kept as null", step, value=str(value))

    def _warn_once(self, message: str, step: int, **fields: Any) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.event("warning", step=step, message=message, **fields)


def _check_folder(run_dir: Path, config_yaml: str, *, resume: bool) -> str | None:
    """The config of the run that the folder holds; None for a folder that is free to take."""
    if run_dir.exists() and not run_dir.is_dir():
        raise ConflictError(f"{run_dir} is a file; a run directory must be a new or empty folder")
    if not layout.is_run(run_dir):
        if run_dir.is_dir() and any(run_dir.iterdir()):
            raise ConflictError(
                f"{run_dir} holds files but no run; name a new or empty folder, nothing there is overwritten"
            )
        return None
    reader = RunReader(run_dir)
    if _owner_lives(run_dir):
        owner = read_owner(run_dir) or {}
        raise ConflictError(
            f"{run_dir} is being trained by process {owner.get('pid')} on this machine "
            f"(attempt {owner.get('attempt')}); wait for it, or stop it first"
        )
    if not resume:
        state = reader.state()
        raise ConflictError(
            f"{run_dir} holds a run already (attempt {state.attempt}, {state.state}, step {state.step}); "
            "resume it, or name another folder"
        )
    earlier = reader.config_text()
    conflict = identity_conflict(earlier, config_yaml) if earlier is not None else None
    if conflict is not None:
        raise ConflictError(f"{run_dir} holds the run of another config: {conflict}; name another folder")
    return earlier


def _owner_lives(run_dir: Path) -> bool:
    """Whether the process that owns the run still works on it. A later process with its number does not count."""
    owner, path = read_owner(run_dir), run_dir / layout.OWNER_FILE
    if owner is None or owner.get("host") != socket.gethostname() or RunReader(run_dir).state().state not in _UNDER_WAY:
        return False
    pid = owner.get("pid")
    if not isinstance(pid, int) or pid == os.getpid() or not psutil.pid_exists(pid):
        return False
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).create_time() <= path.stat().st_mtime
    return False


def _next_attempt(run_dir: Path, *, may_be_later: bool) -> int:
    """Makes the folder of the next attempt. Two that try at once get different numbers, or one is refused."""
    with writing(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
        while True:
            attempt = max(layout.attempts(run_dir), default=0) + 1
            try:
                layout.attempt_dir(run_dir, attempt).mkdir()
            except FileExistsError:
                continue
            if attempt > 1 and not may_be_later:
                layout.attempt_dir(run_dir, attempt).rmdir()
                raise ConflictError(f"{run_dir} was just taken by another process; name another folder")
            return attempt


def _begin_once(run_dir: Path, attempt: int) -> None:
    """Raises ConflictError where a trainer began this very attempt before: it was started twice."""
    path = layout.attempt_dir(run_dir, attempt) / layout.EVENTS_FILE
    try:
        path.open("x").close()
    except FileExistsError as error:
        raise ConflictError(f"{path.parent} was begun already by another process; an attempt begins once") from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
