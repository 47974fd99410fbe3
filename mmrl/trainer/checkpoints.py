"""Checkpoints: a folder that takes its final name only when whole, with a manifest of hashes written last.

checkpoints/step-000100/
    model/          what `from_pretrained` loads: weights, config, tokenizer, processor, template
    trainer.pt      optimiser and schedule, readable without unpickling code
    state.json      step, place in the data, best metric
    manifest.json   size and SHA-256 of every file, the step and the metrics; written last
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mmrl.config.run import CheckpointConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.actor import HfActor
from mmrl.errors import ConflictError
from mmrl.models.policy import save_policy
from mmrl.trainer.recorder import Recorder

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ResumePoint:
    """A whole checkpoint to go on from."""

    folder: Path
    step: int
    state: dict[str, Any]

    @property
    def model_folder(self) -> Path:
        return self.folder / "model"

    def load_trainer(self) -> dict[str, Any]:
        return torch.load(self.folder / "trainer.pt", map_location="cpu", weights_only=True)


class Checkpointer:
    """Writes checkpoints when due and keeps the newest few and the best."""

    def __init__(
        self,
        config: CheckpointConfig,
        *,
        actor: HfActor,
        prompts: PromptStream,
        recorder: Recorder,
        total_steps: int,
        best: tuple[float, int] | None = None,
    ) -> None:
        self._config = config
        self._actor = actor
        self._prompts = prompts
        self._recorder = recorder
        self._total_steps = total_steps
        self._best = best
        self._root = recorder.writer.run_dir / "checkpoints"

    def save_if_due(self, step: int) -> None:
        every = self._config.every
        if step == self._total_steps or (every > 0 and step % every == 0):
            start = time.perf_counter()
            self._save(step)
            self._prune(step)
            self._recorder.end_late({"timing_s/checkpoint": time.perf_counter() - start})

    def _save(self, step: int) -> None:
        final = self._root / f"step-{step:06d}"
        temporary = self._root / f".{final.name}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            save_policy(self._actor.policy, temporary / "model")
            torch.save(self._actor.state_dict(), temporary / "trainer.pt")
            self._note_best(step)
            state = {"step": step, "prompts": self._prompts.state(), "best": self._best}
            (temporary / "state.json").write_text(json.dumps(state))
            _write_manifest(temporary, step, self._recorder.current("eval/"))
            self._take_name(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._recorder.writer.event("checkpoint", step=step, path=f"checkpoints/{final.name}")

    def _take_name(self, temporary: Path, final: Path) -> None:
        if not self._recorder.writer.owns():
            raise ConflictError(
                f"checkpoint {final.name}: another attempt has taken over {self._recorder.writer.run_dir}; "
                "this one stops without writing"
            )
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        _fsync_folder(self._root)

    def _note_best(self, step: int) -> None:
        value = self._recorder.current("").get(self._config.best or "")
        if value is not None and (self._best is None or value > self._best[0]):
            self._best = (value, step)

    def _prune(self, step: int) -> None:
        """Removes all but the newest `keep` and the best; the one of this step is whole and always stays."""
        newest = self._root / f"step-{step:06d}"
        whole = sorted(folder for folder in self._root.glob("step-*") if folder <= newest)
        kept = {newest, *whole[-self._config.keep :]}
        if self._best is not None:
            kept.add(self._root / f"step-{self._best[1]:06d}")
        for folder in whole:
            if folder not in kept:
                shutil.rmtree(folder)


def newest_whole_checkpoint(run_dir: Path, *, say: Callable[[str], None] = lambda text: None) -> ResumePoint | None:
    """The newest checkpoint whose files are all as its manifest says; `say` is told of each that is passed over."""
    folders = sorted((run_dir / "checkpoints").glob("step-*"), reverse=True)
    for folder in folders:
        fault = find_fault(folder)
        if fault is None:
            state = json.loads((folder / "state.json").read_text())
            return ResumePoint(folder, state["step"], state)
        say(f"checkpoint {folder.name} is passed over: {fault}")
    return None


def take_up(run_dir: Path, *, say: Callable[[str], None]) -> ResumePoint | None:
    """The checkpoint that an attempt goes on from. Damaged ones beyond it are set aside as `.damaged-step-…`, so that
    they count as no checkpoint any more, and half-written ones of attempts that were killed are removed."""
    point = newest_whole_checkpoint(run_dir, say=say)
    root = run_dir / "checkpoints"
    for folder in root.glob("step-*"):
        if point is None or int(folder.name.removeprefix("step-")) > point.step:
            aside = root / f".damaged-{folder.name}"
            shutil.rmtree(aside, ignore_errors=True)
            folder.rename(aside)
    for leftover in root.glob(".step-*.tmp"):
        shutil.rmtree(leftover)
    return point


def find_fault(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None when every file is as its manifest says."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        files = {name: (int(entry["bytes"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
    except FileNotFoundError:
        return f"it has no {MANIFEST}, so it was never finished"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} is damaged"
    for name, (num_bytes, sha256) in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != num_bytes:
            return f"{name} has {path.stat().st_size} bytes where {num_bytes} were written"
        if _sha256(path) != sha256:
            return f"{name} does not have the content that was written"
    return None


def _write_manifest(folder: Path, step: int, metrics: dict[str, float]) -> None:
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    manifest = {"schema_version": 1, "step": step, "metrics": metrics, "files": files}
    with (folder / MANIFEST).open("w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
