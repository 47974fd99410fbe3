"""What may stand in the fields of a job: words that fit a line and a command, numbers that both engines hold."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mmrl.config.secrets import redact
from mmrl.errors import ConfigError
from mmrl.jobs.records import NewJob

MAX_PRIORITY = 1_000_000_000
MAX_COUNT = 1_000_000
"""Most CPU slots, GPUs or starts of a job; PostgreSQL's integers end at 2^31."""
_LONGEST = {"name": 200, "pool": 100, "tag": 100, "idempotency key": 200, "run directory": 1000, "note": 10_000}
_POOL = re.compile(r"[\w.-]+")


def check_fields(new: NewJob) -> None:
    """Raises ConfigError that names the field, its value unless it may be a secret, and what is allowed."""
    check_word("name", new.name)
    check_pool(new.pool)
    check_tags(new.tags)
    if new.note is not None:
        check_note(new.note)
    for field, word in (("idempotency key", new.idempotency_key), ("run directory", new.run_dir)):
        if word is not None:
            check_word(field, word)
    check_priority(new.priority)
    if min(new.cpus, new.gpus) < 0 or new.cpus + new.gpus == 0:
        raise ConfigError(f"a job needs cpus or gpus (got cpus={new.cpus}, gpus={new.gpus}); give at least cpus=1")
    for field, count in (("cpus", new.cpus), ("gpus", new.gpus), ("max_attempts", new.max_attempts)):
        if count > MAX_COUNT:
            raise ConfigError(f"{field} is {count}; at most {MAX_COUNT} is allowed")
    if new.max_attempts < 1:
        raise ConfigError(f"max_attempts is {new.max_attempts}; it must be at least 1")


def check_pool(pool: str) -> None:
    """Pools stand in commands that are told to people, and in labels of metrics."""
    check_word("pool", pool)
    if not _POOL.fullmatch(pool):
        raise ConfigError(f"a pool is letters, digits, '.', '-' and '_' (got {pool!r})")


def check_tags(tags: Iterable[str]) -> None:
    for tag in tags:
        check_word("tag", tag)


def check_note(note: str) -> None:
    _check_length("note", note)
    _refuse_secret("note", note)


def check_priority(priority: int) -> None:
    if abs(priority) > MAX_PRIORITY:
        raise ConfigError(f"priority is {priority}; it lies between -{MAX_PRIORITY} and {MAX_PRIORITY}")


def check_word(field: str, word: str) -> None:
    """One line of text that says something: an unset variable of a script, or half a file, is none."""
    if not word.strip():
        raise ConfigError(f"the {field} is empty; give one, or leave it out")
    _check_length(field, word)
    _refuse_secret(field, word)
    if not word.isprintable():
        raise ConfigError(f"the {field} {word!r} holds characters that cannot be printed; write it on one line")


def _check_length(field: str, word: str) -> None:
    if len(word) > _LONGEST[field]:
        raise ConfigError(f"the {field} has {len(word)} characters; at most {_LONGEST[field]} are allowed")


def _refuse_secret(field: str, word: str) -> None:
    if redact(word) != word:
        raise ConfigError(
            f"the {field} holds what looks like a key or a password, and is stored and shown; leave it out, and give "
            "secrets by the environment of the workers"
        )
