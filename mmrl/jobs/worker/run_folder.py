"""What a worker puts into the run directory of a job before its trainer starts, and what it finds there afterwards.

attempt-2/job/config.yaml   what the trainer reads: the resolved config, secrets only as references
attempt-2/job/id            the job whose attempt it is
attempt-2/job/exit          exit code of the trainer, written by the shell that it runs under
attempt-2/logs/             stdout.log and stderr.log
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.config.dump import yaml_text
from mmrl.config.secrets import redact
from mmrl.errors import ConflictError
from mmrl.jobs.records import Job, Lease
from mmrl.runs import layout
from mmrl.runs.disk import write_whole, writing
from mmrl.runs.mirror import local_folder
from mmrl.runs.ownership import AttemptClaim, take_ownership

_LAST_WORDS_BYTES = 4096


@dataclass(frozen=True)
class RunFolder:
    """The run directory of a job, from the view of one attempt."""

    run_dir: Path
    attempt: int

    @classmethod
    def of_job(cls, job: Job) -> RunFolder:
        """Of the job's last attempt: for a run directory in an object store, where it is written on this machine."""
        return cls(local_folder(job.run_dir).absolute(), job.attempt)

    @property
    def attempt_dir(self) -> Path:
        return layout.attempt_dir(self.run_dir, self.attempt)

    @property
    def config_file(self) -> Path:
        return self.attempt_dir / "job" / layout.CONFIG_FILE

    @property
    def exit_file(self) -> Path:
        return self.attempt_dir / "job" / "exit"

    @property
    def logs_dir(self) -> Path:
        return self.attempt_dir / "logs"

    @property
    def stdout(self) -> Path:
        return self.logs_dir / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.logs_dir / "stderr.log"

    def is_begun_by(self, job_id: str) -> bool:
        """Whether a trainer of this very attempt of the job began here before. A database that lost its last second
        with the power of its machine gives a number a second time."""
        try:
            is_own = (self.attempt_dir / "job" / "id").read_text().strip() == job_id
        except OSError:
            is_own = False
        return is_own and layout.was_begun(self.run_dir, self.attempt)

    def prepare(self, lease: Lease, config: Mapping[str, Any] | None = None) -> None:
        """Makes the attempt's folder and gives it the run: from here on no earlier attempt writes a checkpoint.

        config: what the trainer reads, references to other jobs resolved; the job's own if not given.
        Raises ConflictError where the folder holds a run that is not this job's, or a later attempt owns it, and
        RunFailedError where the disk refuses.
        """
        self._refuse_a_foreign_run()
        with writing(self.attempt_dir):
            for folder in (self.config_file.parent, self.logs_dir):
                folder.mkdir(parents=True, exist_ok=True)
        take_ownership(self.run_dir, AttemptClaim(self.attempt, lease.token), pid=None)
        write_whole(self.attempt_dir / "job" / "id", f"{lease.job_id}\n".encode())
        write_whole(self.config_file, yaml_text(redact(dict(lease.job.config if config is None else config))).encode())

    def resume_word(self, lease: Lease) -> str:
        """What `mmrl train --resume` is given: the checkpoint that the job begins from, until it has one of its own."""
        begins_from = lease.job.resume_checkpoint
        has_own = any(
            layout.parse_checkpoint_name(path.name) is not None
            for path in layout.checkpoints_dir(self.run_dir).glob("step-*")
        )
        return begins_from if begins_from and not has_own else "auto"

    def exit_code(self) -> int | None:
        """As the shell wrote it: 128 + N for a trainer that signal N ended. None where it wrote nothing."""
        try:
            text = self.exit_file.read_text().strip()
        except OSError:
            return None
        return int(text) if text.isdecimal() else None

    def last_words(self) -> str:
        """The end of what the trainer wrote to stderr, without what looks like a key."""
        try:
            with self.stderr.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _LAST_WORDS_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        cleaned: str = redact(text)
        return cleaned

    def free_bytes(self) -> int | None:
        """None where it cannot be told."""
        for folder in (self.run_dir, *self.run_dir.parents):
            with contextlib.suppress(OSError):
                return shutil.disk_usage(folder).free
        return None

    def _refuse_a_foreign_run(self) -> None:
        """The attempts of a job and of its run directory have the same numbers."""
        later = [number for number in layout.attempts(self.run_dir) if number > self.attempt]
        begun_by_others = self.attempt == 1 and layout.was_begun(self.run_dir, 1)
        if later or begun_by_others:
            raise ConflictError(
                f"{self.run_dir} holds attempt {later[-1] if later else 1} of a run already, and attempt "
                f"{self.attempt} of this job would be another; submit the job with a run directory of its own"
            )
