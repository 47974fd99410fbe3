"""The console's password and its key: files in `MMRL_HOME/console` that only their owner can read.

The password is kept as scrypt's hash of it, or comes from the environment for machines that are set up that way.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from console.settings import folder
from mmrl.errors import ConfigError, ConflictError

PASSWORD_VARIABLE = "MMRL_CONSOLE_PASSWORD"
MIN_LENGTH = 10
_COST = {"n": 2**14, "r": 8, "p": 1}
_KEY_BYTES = 32


@dataclass(frozen=True)
class Password:
    """stamp: changes with the password, and tells nothing of it; sign-ins that carry another one are over."""

    salt: bytes
    hashed: bytes

    @classmethod
    def of(cls, text: str, *, salt: bytes | None = None) -> Password:
        """Raises ConfigError for one that is too short."""
        if len(text) < MIN_LENGTH:
            raise ConfigError(f"the console's password has {len(text)} characters; use at least {MIN_LENGTH}")
        salt = secrets.token_bytes(16) if salt is None else salt
        return cls(salt, _hash(text, salt))

    @property
    def stamp(self) -> str:
        return hmac.new(load_key(), self.hashed, hashlib.sha256).hexdigest()[:16]

    def matches(self, text: str) -> bool:
        return hmac.compare_digest(_hash(text, self.salt), self.hashed)


def load_password() -> Password | None:
    """From MMRL_CONSOLE_PASSWORD, else the file that `mmrl console --set-password` writes; None where there is none.

    Raises ConfigError for one that is too short, and for a file that is damaged.
    """
    text = os.environ.get(PASSWORD_VARIABLE)
    if text:
        return _of_environment(text, load_key())
    file = _password_file()
    try:
        method, salt, hashed = file.read_text(encoding="ascii").strip().split(":")
        if method != "scrypt":
            raise ValueError(method)
        return Password(base64.b64decode(salt, validate=True), base64.b64decode(hashed, validate=True))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{file} cannot be read as a password's hash; set it anew with `mmrl console --set-password`"
        ) from error


def save_password(text: str) -> Path:
    """Raises ConfigError for one that is too short."""
    password = Password.of(text)
    file = _password_file()
    words = ["scrypt", *(base64.b64encode(part).decode("ascii") for part in (password.salt, password.hashed))]
    partial = file.with_name(".password.tmp")
    partial.unlink(missing_ok=True)
    _write_private(partial, ":".join(words) + "\n")
    partial.replace(file)
    return file


def load_key() -> bytes:
    """What sign-ins are signed with; made at first use. Whoever deletes the file ends all of them.

    Raises ConflictError for a file that holds no key.
    """
    file = folder() / "key"
    if not file.exists():
        with contextlib.suppress(FileExistsError):  # another process was first
            _write_private(file, secrets.token_hex(_KEY_BYTES) + "\n")
    try:
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConflictError(f"{file} is damaged; delete it, and everybody signs in anew")
    return key


@functools.lru_cache(maxsize=2)
def _of_environment(text: str, key: bytes) -> Password:
    """Salted by the key, so that sign-ins outlive a restart."""
    return Password.of(text, salt=hashlib.sha256(key).digest()[:16])


def _password_file() -> Path:
    return folder() / "password"


def _write_private(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def _hash(text: str, salt: bytes) -> bytes:
    return hashlib.scrypt(text.encode("utf-8"), salt=salt, n=_COST["n"], r=_COST["r"], p=_COST["p"], dklen=32)
