"""From a draft to a job: what is wrong with it, what a run of it would do, how its rewards score, and its launch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.services.drafts import Draft, Drafts
from console.services.processes import Processes, Task
from mmrl.config.loading import load_config
from mmrl.errors import ConfigError, MmrlError
from mmrl.jobs.config_checks import code_keys, refuse_literal_secrets
from mmrl.jobs.field_checks import check_fields
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job, User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.settings import JobsSettings

if TYPE_CHECKING:
    from mmrl.config.kinds import AnyConfig

PREFLIGHT_S = 600.0
TRY_OUT_S = 300.0
TRY_OUT_ROWS = 12
PREPARE_S = 3600.0
PREPARE_KEY = "prepare-tiny-model"

_FAULT = re.compile(r"^(?P<key>[a-z_][\w.\[\]]*): (?P<text>.*)$", re.DOTALL)


@dataclass(frozen=True)
class Fault:
    """line: of the draft's text, None where it is of no line. key: the setting, empty where it is of none."""

    line: int | None
    key: str
    text: str

    def __str__(self) -> str:
        head = f"line {self.line}: " if self.line else ""
        return f"{head}{self.key}: {self.text}" if self.key else f"{head}{self.text}"


@dataclass(frozen=True)
class Checked:
    """Either a config, or what is wrong with the text."""

    config: AnyConfig | None
    faults: tuple[Fault, ...] = ()

    @property
    def is_sound(self) -> bool:
        return self.config is not None

    def of(self, key: str) -> list[Fault]:
        """What is wrong with one setting."""
        return [fault for fault in self.faults if fault.key == key]


class Launching:
    """actor: in whose name is asked and launched."""

    def __init__(self, drafts: Drafts, processes: Processes, jobs: Jobs, actor: User, settings: JobsSettings) -> None:
        self._drafts, self._processes, self._jobs = drafts, processes, jobs
        self._actor, self._settings = actor, settings

    def check(self, draft: Draft) -> Checked:
        """The draft as a config; reads files, and no data and no model."""
        return _checked(self._drafts.path(draft), draft.text)

    def start_preflight(self, draft: Draft) -> Task:
        """What a run would do and need, by a dry run of it; the one for this very draft where it runs already."""
        self._check_code(draft)
        begin = ["--from", draft.resume_checkpoint] if draft.resume_checkpoint else []
        words = ["run", str(self._drafts.path(draft)), "--dry-run", "--json", *begin]
        return self._processes.start(_key(draft, "preflight"), words, deadline_s=PREFLIGHT_S, stamp=draft.stamp)

    def forget_preflight(self, draft: Draft) -> None:
        """So that it is done anew, though nothing changed: data and models may have."""
        self._processes.stop(_key(draft, "preflight"))

    def preflight(self, draft: Draft) -> Task | None:
        """The last one, of this draft as it is or as it was: its stamp tells."""
        return self._processes.get(_key(draft, "preflight"))

    def start_try_out(self, draft: Draft) -> Task:
        """The rewards on real rows, each answered rightly, wrongly and in other ways."""
        self._check_code(draft)
        words = ["reward", "test", str(self._drafts.path(draft)), "--limit", str(TRY_OUT_ROWS), "--json"]
        return self._processes.start(_key(draft, "rewards"), words, deadline_s=TRY_OUT_S, stamp=draft.stamp)

    def try_out(self, draft: Draft) -> Task | None:
        return self._processes.get(_key(draft, "rewards"))

    def prepare_tiny_model(self) -> Task:
        """Builds the tiny model and the digits as `mmrl quickstart --prepare` does, once for everybody."""
        check_allowed(self._actor, "data", settings=self._settings)
        return self._processes.start(PREPARE_KEY, ["quickstart", "--prepare", "--json"], deadline_s=PREPARE_S)

    def preparing(self) -> Task | None:
        return self._processes.get(PREPARE_KEY)

    def launch(self, draft_id: str) -> Job:
        """Submits the draft as a job. However often it is asked for, one job comes of a draft.

        Raises ConfigError with all that is wrong, ForbiddenError for who may not.
        """
        draft = self._drafts.get(draft_id)
        if draft.job_id is not None:
            return self._jobs.get(draft.job_id)
        config = load_config(self._drafts.path(draft)).config
        job = self._jobs.submit(
            job_of(
                config,
                pool=draft.pool,
                priority=draft.priority,
                idempotency_key=f"draft-{draft.launch_key}",
                parent_job_id=draft.parent_job_id,
                resume_checkpoint=draft.resume_checkpoint,
            )
        )
        self._drafts.launched(draft.id, job.id)
        self.forget(draft)
        return job

    def forget(self, draft: Draft) -> None:
        """Ends what runs for a draft."""
        for what in ("preflight", "rewards"):
            self._processes.stop(_key(draft, what))

    def command(self, draft: Draft) -> str:
        """What does the same from a shell."""
        path = shlex.quote(str(self._drafts.path(draft)))
        if draft.resume_checkpoint:
            return f"mmrl run {path} --from {shlex.quote(draft.resume_checkpoint)}"
        words = ["mmrl job submit", path]
        words += ["--pool", shlex.quote(draft.pool)] if draft.pool != "default" else []
        words += ["--priority", str(draft.priority)] if draft.priority else []
        return " ".join(words)

    def _check_code(self, draft: Draft) -> None:
        """A dry run calls code of the config on the console's machine, so it takes the same right as launching it."""
        checked = self.check(draft)
        if checked.config is None:
            raise ConfigError(str(checked.faults[0]))
        check_allowed(self._actor, "submit", settings=self._settings)
        if code_keys(checked.config.model_dump(mode="json")):
            check_allowed(self._actor, "code", settings=self._settings)


@lru_cache(maxsize=64)
def _checked(path: Path, text: str) -> Checked:
    """text: of the file at `path`, told so that the check of a text is done once, however often a page asks."""
    try:
        config = load_config(path).config
        refuse_literal_secrets(config.model_dump(mode="json"))
        check_fields(job_of(config))
        return Checked(config)
    except MmrlError as error:
        return Checked(None, tuple(faults_of(str(error), path)))


def faults_of(message: str, path: Path) -> list[Fault]:
    """A message of `load_config` as its faults, each with line and key."""
    lines = message.split("\n  ")
    texts = lines[1:] if len(lines) > 1 and lines[0].endswith("settings are wrong") else [message]
    return [_fault(text, str(path)) for text in texts]


def _fault(text: str, path: str) -> Fault:
    line = None
    if text.startswith(path):
        number, _, rest = text.removeprefix(path).lstrip(":").partition(": ")
        if number.isdecimal():
            line, text = int(number), rest
        else:
            text = text.removeprefix(path).lstrip(": ")
    match = _FAULT.match(text)
    found = Fault(line, match["key"], match["text"]) if match else Fault(line, "", text)
    return Fault(found.line, found.key, found.text.replace(path, "the draft"))


def preflight_of(task: Task | None) -> Mapping[str, Any] | None:
    """The report of a dry run, where there is one."""
    data = task.data if task is not None else None
    return data.get("preflight") if isinstance(data, Mapping) else None


def _key(draft: Draft, what: str) -> str:
    return f"{what}-{draft.id}"
