"""Sign-ins as a signed cookie: who, by what, until when. Each page view asks the database whether that still holds."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

from itsdangerous import BadSignature, URLSafeTimedSerializer

from console.passwords import load_key, load_password
from console.settings import folder, load_settings
from mmrl.data.files import write_bytes
from mmrl.errors import MmrlError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import User
from mmrl.jobs.users import TOKEN_PREFIX, Users

COOKIE = "mmrl_session"
_SALT = "mmrl.console.session"
_LONGEST_S = 720 * 3600.0
"""What `session_h` may be at most: it may be raised while somebody is signed out."""


class SignInNeededError(MmrlError):
    """Nobody is signed in, or no longer: the sign-in ran out, was ended, or its token or password is gone."""


@dataclass(frozen=True)
class Session:
    """token: the id of the API token that was shown. stamp: of the password that was. One of both is empty."""

    id: str
    token: str = ""
    stamp: str = ""


def sign_in(users: Users, secret: str) -> Session:
    """By the console's password, as this machine's account, or by an API token, as the one that it speaks for.

    Raises ForbiddenError, which does not tell what was wrong.
    """
    secret = secret.strip()
    password = load_password()
    if secret.startswith(TOKEN_PREFIX):
        token_id = users.token_id(secret)
        if token_id is not None:
            return Session(secrets.token_hex(8), token=token_id)
    elif password is not None and password.matches(secret):
        return Session(secrets.token_hex(8), stamp=password.stamp)
    raise ForbiddenError("that is not the password, nor a token that is valid")


def to_cookie(session: Session) -> str:
    return str(_serializer().dumps(asdict(session)))


def of_cookie(cookie: str | None) -> Session:
    """Raises SignInNeededError for none, a forged one, one that is too old and one that was signed out."""
    max_age_s = round(load_settings().session_h * 3600)
    try:
        session = Session(**_serializer().loads(cookie or "", max_age=max_age_s))
    except (BadSignature, TypeError) as error:
        raise SignInNeededError("your sign-in has ended") from error
    if ENDED.has(session.id):
        raise SignInNeededError("you have signed out")
    return session


def user_of(users: Users, session: Session) -> User:
    """Who a sign-in speaks for now. Raises SignInNeededError where its token or the password has changed since."""
    if session.token:
        try:
            return users.of_token(session.token)
        except ForbiddenError as error:
            raise SignInNeededError("the token that you signed in with is not valid any more") from error
    password = load_password()
    if password is None or not secrets.compare_digest(password.stamp, session.stamp):
        raise SignInNeededError("the console's password has changed")
    return users.local()


class Ended:
    """Sign-ins that were signed out, until they would have run out by themselves. Each is a file, so that no restart of
    the console brings one back to life."""

    def add(self, session: Session) -> None:
        write_bytes(self._folder() / session.id, b"")
        for file in self._folder().iterdir():
            with contextlib.suppress(OSError):
                if file.stat().st_mtime < time.time() - _LONGEST_S:
                    file.unlink()

    def has(self, session_id: str) -> bool:
        return (self._folder() / session_id).exists()

    def _folder(self) -> Path:
        return folder() / "ended"


class Tries:
    """Limits failed sign-ins: `most` from one client and `most_in_all` within `window_s`."""

    def __init__(self, *, most: int = 5, most_in_all: int = 100, window_s: float = 300.0) -> None:
        self._most, self._most_in_all, self._window_s = most, most_in_all, window_s
        self._failed: deque[tuple[float, str]] = deque()
        self._lock = threading.Lock()

    def wait_s(self, client: str, now: float | None = None) -> float:
        """Seconds until the client may try again; 0 for at once."""
        now = time.monotonic() if now is None else now
        with self._lock:
            while self._failed and self._failed[0][0] <= now - self._window_s:
                self._failed.popleft()
            own = [at for at, who in self._failed if who == client]
            if len(own) >= self._most:
                return own[-self._most] + self._window_s - now
            if len(self._failed) >= self._most_in_all:
                return self._failed[-self._most_in_all][0] + self._window_s - now
            return 0.0

    def note(self, client: str, now: float | None = None) -> None:
        """A failed try."""
        with self._lock:
            self._failed.append((time.monotonic() if now is None else now, client))


ENDED = Ended()


def _serializer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(load_key(), salt=_SALT)
