"""Conversations with checkpoints, each a file: what was asked, with which settings, and what each of them answered.

    <home>/conversations/<id>.json        replaced as a whole; images lie in the image store

A reload of the page or a restart of the console loses nothing but the last second of an answer under way.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from mmrl.config.base import home
from mmrl.data.files import locked, write_bytes
from mmrl.errors import ConfigError, DataError, NotFoundError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.settings import JobsSettings
from mmrl.types import ContentPart, ImagePart, ImageRef, Message, TextPart

ReplyState = Literal["writing", "done", "stopped", "failed"]
MAX_QUESTION = 100_000
MAX_TOKENS = 32_768
_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Column:
    """A checkpoint in a conversation. uri: its folder; label: its name for people."""

    run_id: str
    step: int
    uri: str
    label: str


@dataclass(frozen=True)
class Sampling:
    """How answers are sampled. seed: the same for all; None draws anew each time. max_tokens: of an answer."""

    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None

    def check(self) -> None:
        """Raises ConfigError that says what is allowed."""
        if not 0 <= self.temperature <= 2:
            raise ConfigError(f"temperature must be between 0 and 2 (got {self.temperature})")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p must be above 0 and at most 1 (got {self.top_p})")
        if not 1 <= self.max_tokens <= MAX_TOKENS:
            raise ConfigError(f"max tokens must be between 1 and {MAX_TOKENS} (got {self.max_tokens})")
        if self.seed is not None and not 0 <= self.seed < 2**63:
            raise ConfigError(f"the seed must be a whole number from 0 (got {self.seed})")


@dataclass(frozen=True)
class Reply:
    """What a checkpoint answers. finish_reason, num_tokens: as the server says; None where it did not, or not yet.

    writing: told so by the file although nobody writes any more, if the console was ended meanwhile.
    """

    text: str = ""
    state: ReplyState = "writing"
    finish_reason: str | None = None
    num_tokens: int | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Turn:
    """A question to all, with one reply a column, in order."""

    question: str
    images: tuple[ImageRef, ...]
    sampling: Sampling
    replies: tuple[Reply, ...]


@dataclass(frozen=True)
class Conversation:
    """system: what stands before the first question; empty for nothing. created_at: seconds since 1970."""

    id: str
    owner_id: str
    created_at: float
    columns: tuple[Column, ...]
    system: str = ""
    turns: tuple[Turn, ...] = field(default=())

    @property
    def title(self) -> str:
        first = " ".join(self.turns[0].question.split()) if self.turns else ""
        return first[:80] or "nothing asked yet"

    def prompt(self, turn: int, column: int) -> tuple[Message, ...]:
        """What a checkpoint is given for its reply of a turn: all before it with its own answers, and the question."""
        messages = [Message("system", (TextPart(self.system),))] if self.system else []
        for number, each in enumerate(self.turns[: turn + 1]):
            parts: list[ContentPart] = [ImagePart(image) for image in each.images]
            messages.append(Message("user", (*parts, TextPart(each.question))))
            if number < turn:
                messages.append(Message("assistant", (TextPart(each.replies[column].text),)))
        return tuple(messages)


class Conversations:
    """actor: who looks and asks. All may read a conversation whose address they have; who began it goes on with it."""

    def __init__(self, actor: User, settings: JobsSettings, *, root: Path | None = None) -> None:
        self._actor, self._settings = actor, settings
        self.root = root if root is not None else home() / "conversations"

    def begin(self, columns: tuple[Column, ...], *, system: str = "") -> Conversation:
        """Raises ForbiddenError for who may not submit, ConfigError for no checkpoint."""
        check_allowed(self._actor, "submit", settings=self._settings)
        if not columns:
            raise ConfigError("choose a checkpoint to ask")
        conversation = Conversation(uuid4().hex[:12], self._actor.id, time.time(), columns, system.strip())
        _write(self.root, conversation)
        return conversation

    def ask(
        self, conversation_id: str, question: str, images: tuple[ImageRef, ...], sampling: Sampling
    ) -> Conversation:
        """Adds a question that all columns are to answer.

        Raises ConfigError for no question, DataError while another one is being answered, ForbiddenError.
        """
        sampling.check()
        if not question.strip() or len(question) > MAX_QUESTION:
            raise ConfigError(f"a question has between 1 and {MAX_QUESTION} characters (got {len(question.strip())})")

        def add(now: Conversation) -> Conversation:
            if now.turns and any(reply.state == "writing" for reply in now.turns[-1].replies):
                raise DataError("the last question is still being answered; wait, or stop it")
            turn = Turn(question, images, sampling, tuple(Reply() for _ in now.columns))
            return replace(now, turns=(*now.turns, turn))

        self.check_owner(self.get(conversation_id))
        return update(self.root, conversation_id, add)

    def get(self, conversation_id: str) -> Conversation:
        """Raises NotFoundError."""
        return read(self.root, conversation_id)

    def mine(self) -> list[Conversation]:
        """The newest first."""
        found = (_read_file(path) for path in self.root.glob("*.json"))
        own = [each for each in found if each is not None and each.owner_id == self._actor.id]
        return sorted(own, key=lambda each: -each.created_at)

    def remove(self, conversation: Conversation) -> None:
        """For good; its images and what was kept of it stay. Doing so again changes nothing."""
        self.check_owner(conversation)
        self._path(conversation.id).unlink(missing_ok=True)

    def check_owner(self, conversation: Conversation) -> None:
        """Raises ForbiddenError unless it is one's own, or one is an admin."""
        check_allowed(self._actor, "submit", settings=self._settings)
        if self._actor.id != conversation.owner_id and self._actor.role != "admin":
            raise ForbiddenError("this conversation is somebody else's: read it, or begin one of your own")

    def _path(self, conversation_id: str) -> Path:
        return _path(self.root, conversation_id)


def read(root: Path, conversation_id: str) -> Conversation:
    """Raises NotFoundError."""
    found = _read_file(_path(root, conversation_id)) if _ID.fullmatch(conversation_id) else None
    if found is None:
        raise NotFoundError("this conversation is not there any more, or its file cannot be read; begin another one")
    return found


def update(root: Path, conversation_id: str, change: Callable[[Conversation], Conversation]) -> Conversation:
    """Changes the file under its lock, so that two answers that end at once are both kept."""
    with locked(root):
        changed = change(read(root, conversation_id))
        _write(root, changed)
        return changed


def with_reply(conversation: Conversation, turn: int, column: int, reply: Reply) -> Conversation:
    old = conversation.turns[turn]
    replies = tuple(reply if place == column else each for place, each in enumerate(old.replies))
    turns = list(conversation.turns)
    turns[turn] = replace(old, replies=replies)
    return replace(conversation, turns=tuple(turns))


def _path(root: Path, conversation_id: str) -> Path:
    return root / f"{conversation_id}.json"


def _write(root: Path, conversation: Conversation) -> None:
    write_bytes(_path(root, conversation.id), json.dumps(asdict(conversation)).encode())


def _read_file(path: Path) -> Conversation | None:
    try:
        return _conversation(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _conversation(values: Mapping[str, Any]) -> Conversation:
    turns = tuple(
        Turn(
            turn["question"],
            tuple(ImageRef(**image) for image in turn["images"]),
            Sampling(**turn["sampling"]),
            tuple(Reply(**reply) for reply in turn["replies"]),
        )
        for turn in values["turns"]
    )
    columns = tuple(Column(**column) for column in values["columns"])
    return Conversation(**{**values, "columns": columns, "turns": turns})
