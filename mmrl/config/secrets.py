"""Secrets in a config: which keys hold them, and how they are left out of all that is written or printed.

A secret may be given as a reference: `env:NAME`, the value of that environment variable, or `file:PATH`, the content
of that file. The reference is no secret. What lies in mmrl's own home is never read: keys of the console and of served
models are there, which are nobody's to send.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

REDACTED = "<redacted>"

_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_FILE_REFERENCE = re.compile(r"file:((?:/|~/)[^\0\n]+)")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORDS = {"password", "passwd", "passphrase", "secret", "credential", "authorization", "apikey", "bearer"}
_SECRET_PAIRS = {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("signing", "key")}
_SPECIAL_TOKENS = {"bos", "end", "eos", "image", "mask", "pad", "sep", "stop", "unk", "video"}
_SECRET_TEXT = re.compile(
    r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
    r"|\b(?:sk|rk|pk)-[A-Za-z0-9_-]{16,}|\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[A-Z0-9]{16}\b"
    r"|(?<=\bBearer )[A-Za-z0-9._~+/=-]{8,}"
)


def referenced_variable(value: Any) -> str | None:
    """NAME of `env:NAME`; None for anything else."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None


def referenced_file(value: Any) -> Path | None:
    """PATH of `file:PATH`, which is absolute or begins with `~/`; None for anything else."""
    match = _FILE_REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return Path(match[1]).expanduser() if match else None


def is_reference(value: Any) -> bool:
    """Whether a value says where a secret is, and is none itself."""
    return referenced_variable(value) is not None or referenced_file(value) is not None


def read_reference(value: str) -> str:
    """What a reference stands for, without white space around it; '' where the variable is not set, and where the file
    cannot be read or lies in mmrl's home."""
    variable, file = referenced_variable(value), referenced_file(value)
    if variable is not None:
        return os.environ.get(variable, "").strip()
    try:
        return file.read_text(encoding="utf-8").strip() if file is not None and not is_in_home(file) else ""
    except (OSError, UnicodeDecodeError):
        return ""


def is_in_home(file: Path) -> bool:
    """Whether a file lies below mmrl's home, however its path or the home's is written."""
    from mmrl.config.base import home  # which needs this module

    try:
        return file.resolve().is_relative_to(home().resolve())
    except (OSError, RuntimeError):  # links in a circle: nothing to read there
        return False


def is_secret_key(key: str) -> bool:
    """True for `api_key`, `hf_token`, `dbPassword` and the like; False for `max_tokens` or `eos_token`."""
    words = [word.lower() for word in _WORDS.findall(key)]
    if any(word.removesuffix("s") in _SECRET_WORDS for word in words):
        return True
    if any((first, second.removesuffix("s")) in _SECRET_PAIRS for first, second in pairwise(words)):
        return True
    return bool(words) and words[-1] == "token" and not _SPECIAL_TOKENS.intersection(words)


def redact(value: Any) -> Any:
    """A copy of plain data in which whatever stands under a secret key, or looks like a key in a text, is replaced."""
    if isinstance(value, Mapping):
        return {key: redact_under(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(redact(item) for item in value)
    return _SECRET_TEXT.sub(REDACTED, value) if isinstance(value, str) else value


def redact_at(path: Sequence[str | int], value: Any) -> Any:
    """`value` as it may be shown at a path: not at all if any key on the way to it is that of a secret."""
    if any(is_secret_key(str(part)) for part in path) and value is not None and not is_reference(value):
        return REDACTED
    return redact(value)


def redact_under(key: str, value: Any) -> Any:
    """`value` as it may be shown under `key`."""
    is_hidden = value is not None and not isinstance(value, bool) and value != "" and not is_reference(value)
    return REDACTED if is_hidden and is_secret_key(key) else redact(value)


def secret_values(value: Any) -> frozenset[str]:
    """The texts under secret keys in plain data, and what their references stand for; very short ones are left out,
    since any text holds them."""
    if isinstance(value, Mapping):
        own = {_resolved(item) for key, item in value.items() if is_secret_key(str(key)) and isinstance(item, str)}
        found = {text for text in own if len(text) >= 4}
        return frozenset(found).union(*(secret_values(item) for item in value.values()))
    if isinstance(value, (list, tuple)):
        return frozenset().union(*(secret_values(item) for item in value))
    return frozenset()


def without(text: str, secrets: frozenset[str]) -> str:
    """`text` with each of the secrets, and whatever looks like a key, replaced."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return _SECRET_TEXT.sub(REDACTED, text)


def _resolved(text: str) -> str:
    return read_reference(text) if is_reference(text) else text
