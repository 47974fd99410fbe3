"""People and services: their roles, and the tokens that speak for them."""

from __future__ import annotations

import getpass
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from mmrl.errors import ConflictError, NotFoundError
from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.ids import new_id
from mmrl.jobs.records import ApiToken, Role, User
from mmrl.jobs.roles import check_scopes
from mmrl.jobs.rows import some_time, to_seconds, to_time

TOKEN_PREFIX = "mmrl_"
TOKEN_VARIABLE = "MMRL_TOKEN"
"""Commands act for the user of the token in it. Trainers do not get it."""
_LOCAL = "local"


class Users:
    def __init__(self, database: Database) -> None:
        self.database = database

    def local(self) -> User:
        """The user of this machine's account, made at first use. An admin: whoever holds the database's password, or
        its file, can change any row in it anyway."""
        with self.database.reading() as connection:
            row = connection.execute(sa.select(tables.users).where(tables.users.c.id == local_id())).first()
        if row is not None:
            return _user(row)
        with self.database.transaction() as connection:
            return local_user(connection)

    def add(self, name: str, *, role: Role, email: str | None = None, oidc: tuple[str, str] | None = None) -> User:
        """A new user. oidc: issuer and subject. Raises ConflictError for a subject that has a user."""
        table = tables.users
        try:
            with self.database.transaction() as connection:
                now = self.database.now(connection)
                issuer, subject = oidc or (None, None)
                user_id = new_id(now)
                row = {"id": user_id, "name": name, "email": email, "role": role, "created_at": now}
                connection.execute(table.insert().values(row | {"oidc_iss": issuer, "oidc_sub": subject}))
                return _read(connection, user_id)
        except sa.exc.IntegrityError as error:
            raise ConflictError(f"cannot add user {name!r}: {subject!r} of {issuer!r} is one already") from error

    def get(self, user_id: str) -> User:
        with self.database.reading() as connection:
            return _read(connection, user_id)

    def find_oidc(self, issuer: str, subject: str) -> User | None:
        table = tables.users
        query = sa.select(table.c.id).where(table.c.oidc_iss == issuer, table.c.oidc_sub == subject)
        with self.database.reading() as connection:
            found = connection.execute(query).scalar_one_or_none()
            return None if found is None else _read(connection, found)

    def all(self) -> list[User]:
        with self.database.reading() as connection:
            return [_user(row) for row in connection.execute(sa.select(tables.users).order_by(tables.users.c.name))]

    def set_role(self, user_id: str, role: Role) -> User:
        """Raises ConflictError where no admin would be left."""
        return self._change(user_id, ends_admin=role != "admin", role=role)

    def set_disabled(self, user_id: str, is_disabled: bool) -> User:
        """A disabled user can do nothing; their jobs go on. Raises as `set_role`."""
        return self._change(user_id, ends_admin=is_disabled, disabled_at=NOW if is_disabled else None)

    def create_token(
        self, user_id: str, name: str, *, scopes: Iterable[str], expires_at: datetime | None = None
    ) -> tuple[str, ApiToken]:
        """A token and what is kept of it. The text is told this once: only its SHA-256 is stored.

        scopes: names of actions, see `roles.ACTIONS`. Raises ConfigError for others.
        """
        text = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self.database.transaction() as connection:
            _read(connection, user_id)
            now = self.database.now(connection)
            token_id = new_id(now)
            row = {
                "id": token_id,
                "user_id": user_id,
                "name": name,
                "sha256": _hash(text),
                "scopes": sorted(check_scopes(scopes)),
                "created_at": now,
                "expires_at": to_seconds(expires_at),
            }
            connection.execute(tables.api_tokens.insert().values(row))
            return text, _token(connection, token_id)

    def tokens(self, user_id: str) -> list[ApiToken]:
        table = tables.api_tokens
        with self.database.reading() as connection:
            rows = connection.execute(sa.select(table).where(table.c.user_id == user_id).order_by(table.c.id))
            return [_to_token(row) for row in rows]

    def revoke_token(self, token_id: str) -> ApiToken:
        """The token is worth nothing from now on. Revoking it again changes nothing."""
        table = tables.api_tokens
        with self.database.transaction() as connection:
            live = table.update().where(table.c.id == token_id, table.c.revoked_at.is_(None))
            connection.execute(live.values(revoked_at=NOW))
            return _token(connection, token_id)

    def authenticate(self, text: str) -> User:
        """The user that a token speaks for, with its scopes. Raises ForbiddenError, which does not tell why: unknown,
        expired, revoked, or of a disabled user."""
        token_id = self.token_id(text)
        if token_id is None:
            raise ForbiddenError("this token is not valid; ask for a new one")
        return self.of_token(token_id)

    def token_id(self, text: str) -> str | None:
        """The id of a token that is valid now; None for any other text. It counts as a use of the token, where the
        database takes the note."""
        table = tables.api_tokens
        with self.database.reading() as connection:
            row = _valid(connection, table.c.sha256 == _hash(text))
        if row is None:
            return None
        used = table.update().where(table.c.id == row.id).values(last_used_at=NOW)
        self.database.try_to_write(lambda connection: connection.execute(used).rowcount)
        return str(row.id)

    def of_token(self, token_id: str) -> User:
        """The user that a token speaks for, by the token's id. Raises ForbiddenError once it is not valid any more."""
        with self.database.reading() as connection:
            row = _valid(connection, tables.api_tokens.c.id == token_id)
            if row is None:
                raise ForbiddenError("this token is not valid any more; ask for a new one")
            user = _read(connection, row.user_id)
        return replace(user, scopes=frozenset(row.scopes), token_expires_at=to_time(row.expires_at))

    def bind_oidc(self, user_id: str, issuer: str, subject: str) -> User:
        """Gives a user who was added by address the subject that they sign in as. Raises ConflictError for a subject
        that is another user, and for a user who has one."""
        table = tables.users
        with self.database.transaction() as connection:
            free = table.update().where(table.c.id == user_id, table.c.oidc_sub.is_(None))
            try:
                done = connection.execute(free.values(oidc_iss=issuer, oidc_sub=subject)).rowcount
            except sa.exc.IntegrityError as error:
                raise ConflictError(f"{subject!r} of {issuer!r} is another user already") from error
            if not done:
                raise ConflictError(f"user {user_id} signs in as somebody already")
            return _read(connection, user_id)

    def _change(self, user_id: str, *, ends_admin: bool, **values: Any) -> User:
        table = tables.users
        with self.database.transaction() as connection:
            if ends_admin:
                _refuse_last_admin(connection, user_id)
            connection.execute(table.update().where(table.c.id == user_id).values(values))
            return _read(connection, user_id)


def local_user(connection: sa.Connection) -> User:
    """See `Users.local`."""
    name = _account()
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    row = {"id": local_id(), "oidc_iss": _LOCAL, "oidc_sub": name, "name": name, "role": "admin"}
    insert = dialect.insert(tables.users).values(row | {"created_at": NOW})
    connection.execute(insert.on_conflict_do_nothing())
    return _read(connection, row["id"])


def local_id() -> str:
    """The id of the user of this machine's account."""
    return f"{_LOCAL}:{_account()}"


def read_user(connection: sa.Connection, user_id: str) -> User:
    return _read(connection, user_id)


def _valid(connection: sa.Connection, is_it: sa.ColumnElement[bool]) -> Any:
    """The row of the token if it is neither revoked nor expired, and its user not disabled."""
    table, users = tables.api_tokens, tables.users
    query = (
        sa.select(table.c.id, table.c.user_id, table.c.scopes, table.c.expires_at)
        .join_from(table, users, users.c.id == table.c.user_id)
        .where(
            is_it,
            table.c.revoked_at.is_(None),
            sa.or_(table.c.expires_at.is_(None), table.c.expires_at > NOW),
            users.c.disabled_at.is_(None),
        )
    )
    return connection.execute(query).first()


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _refuse_last_admin(connection: sa.Connection, user_id: str) -> None:
    """Locks the admins, so that of two who leave at once the second one sees that the first is gone."""
    table = tables.users
    admins = sa.select(table.c.id).where(table.c.role == "admin", table.c.disabled_at.is_(None)).order_by(table.c.id)
    if list(connection.execute(admins.with_for_update()).scalars()) == [user_id]:
        raise ConflictError("they are the last admin; make somebody else one first")


def _read(connection: sa.Connection, user_id: str) -> User:
    row = connection.execute(sa.select(tables.users).where(tables.users.c.id == user_id)).first()
    if row is None:
        raise NotFoundError(f"no user {user_id!r}")
    return _user(row)


def _user(row: Any) -> User:
    return User(row.id, row.name, row.email, row.role, some_time(row.created_at), row.disabled_at is not None)


def _token(connection: sa.Connection, token_id: str) -> ApiToken:
    row = connection.execute(sa.select(tables.api_tokens).where(tables.api_tokens.c.id == token_id)).first()
    if row is None:
        raise NotFoundError(f"no token {token_id!r}")
    return _to_token(row)


def _to_token(row: Any) -> ApiToken:
    return ApiToken(
        id=row.id,
        user_id=row.user_id,
        name=row.name,
        scopes=frozenset(row.scopes),
        created_at=some_time(row.created_at),
        expires_at=to_time(row.expires_at),
        revoked_at=to_time(row.revoked_at),
        last_used_at=to_time(row.last_used_at),
    )
