"""Runs in preparation: each a YAML file as `mmrl run` takes it, and beside it who prepares it and what became of it.

    <root>/<id>.yaml     the config, as text: what the form sets and what is written by hand is one and the same
    <root>/<id>.json     owner, origin, the key under which it is launched once, the job that it became

Every change is on the disk before the page is drawn again, whole: reloads, other pages and restarts lose nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from console.services.draft_text import parsed, with_changes, with_value
from mmrl.config.base import home
from mmrl.data.files import locked, write_bytes
from mmrl.errors import ConfigError, ConflictError, NotFoundError
from mmrl.jobs.records import User

MAX_CHARACTERS = 200_000
"""Of a draft's text. A config is a hundredth of that; more is data, which belongs into files, and makes each look at
the page slow."""
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Draft:
    """text: the config as YAML. origin: what it began as, in words. updated_at: seconds since 1970.

    launch_key: the same for every click on Launch, so that one job comes of them. job_id: that job.
    checkpoint: the folder of the checkpoint that it begins with; resume_checkpoint: the same where its optimiser and
    place in the data are taken over too.
    """

    id: str
    owner_id: str
    text: str
    origin: str
    updated_at: float
    launch_key: str
    job_id: str | None = None
    parent_job_id: str | None = None
    checkpoint: str | None = None
    resume_checkpoint: str | None = None
    pool: str = "default"
    priority: int = 0

    @property
    def stamp(self) -> str:
        """Changes with all that decides how the run would go."""
        content = f"{self.text}\x00{self.resume_checkpoint or ''}"
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def data(self) -> dict[str, Any] | None:
        """The config as far as it is written, not to be written into; None where the text is no YAML map."""
        return parsed(self.text)

    @property
    def name(self) -> str:
        data = self.data or {}
        return str(data.get("name") or "unnamed")

    def value(self, key: str, default: Any = None) -> Any:
        """What is written at a dotted key."""
        found: Any = self.data
        for part in key.split("."):
            if isinstance(found, Mapping) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
                found = found[int(part)]
            else:
                return default
        return found


class Drafts:
    """actor: who looks. People see and change their own drafts; an admin those of all."""

    def __init__(self, actor: User, root: Path | None = None) -> None:
        self._actor = actor
        self._root = root if root is not None else home() / "drafts"

    def create(self, text: str, *, origin: str, **settings: Any) -> Draft:
        """Raises ConfigError, as what changes a text does, for one of more than MAX_CHARACTERS."""
        draft = Draft(uuid4().hex[:12], self._actor.id, text, origin, time.time(), uuid4().hex, **settings)
        self._write(draft)
        return draft

    def all(self) -> list[Draft]:
        """Those of the viewer that were not launched, the last changed first."""
        drafts = [draft for file in self._root.glob("*.json") if (draft := self._read(file.stem)) is not None]
        own = [draft for draft in drafts if draft.job_id is None and draft.owner_id == self._actor.id]
        return sorted(own, key=lambda draft: -draft.updated_at)

    def get(self, draft_id: str) -> Draft:
        """Raises NotFoundError, also for a draft of somebody else."""
        draft = self._read(draft_id) if _ID.fullmatch(draft_id) else None
        if draft is None or (draft.owner_id != self._actor.id and self._actor.role != "admin"):
            raise NotFoundError("this draft is not there any more; begin a new one, or choose one of those below")
        return draft

    def path(self, draft: Draft) -> Path:
        """The YAML file, which commands read."""
        return self._root / f"{draft.id}.yaml"

    def set_text(self, draft_id: str, text: str, *, base: str | None = None) -> Draft:
        """The whole text, whether it is right or not: what was typed is never lost.

        base: the text that it was made of. What the form has changed since is changed in the new text too.
        """
        with locked(self._root):
            draft = self._open(draft_id)
            return self._changed(draft, text=text if base is None else with_changes(text, base, draft.text))

    def set_value(self, draft_id: str, key: str, value: Any) -> Draft:
        """One dotted key, the rest of the text and its comments as they are. Raises ConfigError where it is no YAML."""
        with locked(self._root):
            draft = self._open(draft_id)
            return self._changed(draft, text=with_value(draft.text, key, value))

    def change(self, draft_id: str, **settings: Any) -> Draft:
        """How it is launched: pool, priority, resume_checkpoint."""
        with locked(self._root):
            return self._changed(self._open(draft_id), **settings)

    def launched(self, draft_id: str, job_id: str) -> Draft:
        with locked(self._root):
            draft = replace(self.get(draft_id), job_id=job_id)
            self._write(draft)
            return draft

    def copy(self, draft_id: str) -> Draft:
        """Another draft of the same config, to be launched by itself."""
        draft = self.get(draft_id)
        return self.create(
            draft.text,
            origin=f"a copy of {draft.name}",
            parent_job_id=draft.parent_job_id,
            checkpoint=draft.checkpoint,
            resume_checkpoint=draft.resume_checkpoint,
            pool=draft.pool,
            priority=draft.priority,
        )

    def remove(self, draft_id: str) -> None:
        """Doing so again changes nothing."""
        try:
            draft = self.get(draft_id)
        except NotFoundError:
            return
        (self._root / f"{draft.id}.json").unlink(missing_ok=True)
        self.path(draft).unlink(missing_ok=True)

    def _open(self, draft_id: str) -> Draft:
        draft = self.get(draft_id)
        if draft.job_id is not None:
            raise ConflictError("this draft was launched and stays as it is; copy it to change it")
        return draft

    def _changed(self, draft: Draft, **settings: Any) -> Draft:
        changed = replace(draft, **settings, updated_at=time.time())
        self._write(changed)
        return changed

    def _read(self, draft_id: str) -> Draft | None:
        try:
            text = (self._root / f"{draft_id}.yaml").read_text(encoding="utf-8")
            return Draft(text=text, **json.loads((self._root / f"{draft_id}.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, draft: Draft) -> None:
        if len(draft.text) > MAX_CHARACTERS:
            raise ConfigError(
                f"the draft would be {len(draft.text):,} characters long, and it may have {MAX_CHARACTERS:,}: it stays "
                "as it was; put data and long texts into files and name those"
            )
        kept = asdict(draft)
        text = kept.pop("text")
        write_bytes(self.path(draft), text.encode("utf-8"))
        write_bytes(self._root / f"{draft.id}.json", json.dumps(kept).encode())
