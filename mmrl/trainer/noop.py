"""`run_noop`: a run that trains nothing, with run directory, checkpoints, stops and failures like any other. No torch.

Its metric noop/value of a step follows from seed and step alone, so a broken and resumed run equals an unbroken one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mmrl.config.dump import dump_yaml
from mmrl.config.noop import NoopConfig, NoopSettings
from mmrl.errors import EXIT_RUN_FAILED, ConflictError, RunFailedError
from mmrl.runs import layout
from mmrl.runs.mirror import local_checkpoint, local_folder, mirrored
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.reader import RunReader
from mmrl.runs.stopping import StopRequest
from mmrl.runs.writer import RunWriter
from mmrl.trainer.checkpoint_folder import find_fault, fsync_folder, seal
from mmrl.trainer.ending import TrainResult, ending, last_values

_CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(86400)"
_SLICE_S = 0.02


def run_noop(
    config: NoopConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Does what `config.noop` says. run_dir, resume: as `mmrl.trainer.train` takes them.

    Raises ConflictError for a folder that may not be taken, RunCancelledError after a stop on request, and NoopError
    with the exit code that the config asks for.
    """
    claim = AttemptClaim.from_environment()
    progress = progress or make_progress()
    where = run_dir if run_dir is not None else layout.new_run_dir(config.name)
    if config.noop.starts_file is not None:
        _tell_start(config.noop.starts_file, where, claim)
    with mirrored(where, every_s=config.noop.mirror_every_s, say=progress.message) as folder:
        return _run(config, folder, resume, progress, claim)


def _run(
    config: NoopConfig, folder: Path, resume: str | Path, progress: ProgressReporter, claim: AttemptClaim | None
) -> TrainResult:
    writer = RunWriter.create(folder, config_yaml=dump_yaml(config), resume=str(resume) != "never", claim=claim)
    stop = StopRequest(writer.attempt_dir)
    with ending(writer, progress, stop=stop):
        _Noop(config, writer, stop, progress).run(_first_step(writer.run_dir, resume))
    values = last_values(writer.run_dir)
    progress.finish(values)
    return TrainResult(writer.run_dir, config.noop.steps, values)


def noop_value(seed: int, step: int) -> float:
    """What the run measures at a step, in [0, 1)."""
    digest = hashlib.sha256(f"{seed}:{step}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _tell_start(name: str, run_dir: Path | str, claim: AttemptClaim | None) -> None:
    """One write in append mode, so that lines of processes that begin at once stay whole. A link is not followed: the
    file is beside the run directory and nowhere else."""
    file = local_folder(run_dir).absolute().parent / name
    file.parent.mkdir(parents=True, exist_ok=True)
    attempt = None if claim is None else claim.attempt
    line = json.dumps({"run_dir": str(run_dir), "attempt": attempt, "pid": os.getpid()}) + "\n"
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.write(out, line.encode())
    finally:
        os.close(out)


def _first_step(run_dir: Path, resume: str | Path) -> int:
    """The step after the newest whole checkpoint, or after that which `resume` names."""
    if str(resume) not in ("auto", "never"):
        checkpoint = local_checkpoint(resume)
        step = layout.parse_checkpoint_name(checkpoint.name)
        if step is None or find_fault(checkpoint) is not None:
            raise ConflictError(f"--resume: {resume} is no whole checkpoint")
        if not RunReader(run_dir).checkpoints():
            return step + 1
    whole = (point.step for point in reversed(RunReader(run_dir).checkpoints()) if find_fault(point.path) is None)
    return next(whole, 0) + 1


class NoopError(RunFailedError):
    """The failure that a config asks for."""

    def __init__(self, settings: NoopSettings) -> None:
        super().__init__(settings.failure)
        self.exit_code = settings.exit_code or EXIT_RUN_FAILED


class _Noop:
    def __init__(self, config: NoopConfig, writer: RunWriter, stop: StopRequest, progress: ProgressReporter) -> None:
        self._config = config
        self._settings: NoopSettings = config.noop
        self._writer = writer
        self._stop = stop
        self._progress = progress
        self._saved = 0

    def run(self, first_step: int) -> None:
        """Steps first_step..steps."""
        settings, writer = self._settings, self._writer
        if settings.ignore_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for _ in range(settings.children):
            subprocess.Popen([sys.executable, "-S", "-c", _CHILD])
        _write_stderr(int(settings.stderr_mb * 1e6))
        time.sleep(settings.start_s)
        writer.begin(first_step - 1, total_steps=settings.steps)
        self._progress.start(settings.steps, completed=first_step - 1)
        with self._stop.between_steps():
            for step in range(first_step, settings.steps + 1):
                self._fail_if_due(step)
                self._hold_if_due(step)
                self._step(step)
                if self._must_stop and step < settings.steps:
                    self._save(step)
                    self._stop.raise_after(step, is_saved=True)
        if settings.exit_code and settings.fail_at_step is None and self._may_fail():
            raise NoopError(settings)

    def _hold_if_due(self, step: int) -> None:
        """A request to stop ends the wait."""
        settings = self._settings
        if step != settings.hold_at_step or settings.hold_until is None:
            return
        while not Path(settings.hold_until).exists() and not self._must_stop:
            time.sleep(_SLICE_S)

    @property
    def _must_stop(self) -> bool:
        return self._stop.is_requested and not self._settings.ignore_sigterm

    def _fail_if_due(self, step: int) -> None:
        if self._may_fail() and step == self._settings.kill_at_step:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._may_fail() and step == self._settings.fail_at_step:
            raise NoopError(self._settings)

    def _may_fail(self) -> bool:
        limit = self._settings.fail_attempts
        return limit is None or self._writer.attempt <= limit

    def _step(self, step: int) -> None:
        settings = self._settings
        self._sleep(settings.step_s)
        value = noop_value(self._config.seed, step)
        names = ["noop/value", *(f"noop/value_{index}" for index in range(1, settings.metrics_per_step))]
        values = dict.fromkeys(names[: settings.metrics_per_step], value)
        if values:
            self._writer.metrics(step, values)
        if settings.samples_per_step:
            self._write_samples(step, value)
        self._progress.step(step, values)
        if settings.checkpoint_every and step % settings.checkpoint_every == 0:
            self._save(step)

    def _sleep(self, seconds: float) -> None:
        """A step may be long; a request to stop that comes as a file shortens it."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._must_stop:
                return
            time.sleep(min(left, _SLICE_S))

    def _save(self, step: int) -> None:
        """A checkpoint in the form of the others, whose model is a file of zeros."""
        if self._saved == step:
            return
        final = layout.checkpoint_dir(self._writer.run_dir, step)
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / "model").mkdir(parents=True)
        (temporary / "model" / "weights.bin").write_bytes(bytes(int(self._settings.checkpoint_mb * 1e6)))
        (temporary / layout.CONFIG_FILE).write_bytes(self._writer.config_yaml)
        time.sleep(self._settings.checkpoint_s)
        seal(temporary, step=step, metrics={})
        if not self._writer.owns():
            shutil.rmtree(temporary)
            raise ConflictError(f"checkpoint {final.name}: another attempt has taken over {self._writer.run_dir}")
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        fsync_folder(final.parent)
        self._writer.event("checkpoint", step=step, path=f"checkpoints/{final.name}")
        self._saved = step

    def _write_samples(self, step: int, value: float) -> None:
        from mmrl.types import Message, RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup, TextPart

        text = f"answer of step {step}"
        prompt = Sample(f"noop-{step}", (Message("user", (TextPart("Which step is it?"),)),), str(step), {})
        rollouts = tuple(
            Rollout(prompt.id, index, (1, 2), (1, 1), (-0.5, -0.5), "stop", text, step, self._config.seed)
            for index in range(self._settings.samples_per_step)
        )
        result = RewardResult(value, (RewardPart("noop", value, 1.0),))
        group = ScoredGroup(RolloutGroup(prompt, rollouts), (result,) * len(rollouts), (0.0,) * len(rollouts))
        self._writer.samples(step, "train", [group], store_path=_no_images)


_no_images: Callable[..., Path] = Path


def _write_stderr(num_bytes: int) -> None:
    line = b"noop writes to stderr. " * 4 + b"\n"
    while num_bytes > 0:
        num_bytes -= os.write(2, line[:num_bytes] if num_bytes < len(line) else line * min(700, num_bytes // len(line)))
