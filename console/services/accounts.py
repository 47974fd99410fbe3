"""People, their roles and their tokens. Every function that changes something takes who asks, and checks them here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from mmrl.errors import ConfigError, ConflictError, NotFoundError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import ApiToken, Role, User
from mmrl.jobs.roles import ACTIONS, check_allowed, is_allowed
from mmrl.jobs.users import Users

ROLES: dict[Role, str] = {
    "viewer": "Sees everything, changes nothing.",
    "member": "Adds data, starts runs, and stops or resumes their own.",
    "admin": "Does everything: runs of others, machines, people, and configs that run code of their own.",
}
SCOPES: dict[str, str] = {
    "read": "see everything",
    "label": "judge samples",
    "submit": "start runs",
    "control": "stop, pause and resume runs",
    "data": "add data sets",
    "code": "configs that run code",
    "admin": "people and machines",
}
MAX_TOKEN_DAYS = 365


def oidc_user(
    users: Users, claims: Mapping[str, Any], *, admins: Iterable[str], new_users: str, emails_are_verified: bool
) -> User:
    """Who signed in with OIDC: known by issuer and subject, or, the first time, by a verified address that an admin
    added, or that the settings name as an admin's.

    new_users: the role of anybody else, or `refuse`. Raises ForbiddenError for those who may not enter.
    """
    issuer, subject = str(claims.get("iss") or ""), str(claims.get("sub") or "")
    if not issuer or not subject:
        raise ForbiddenError("the provider told no issuer or no subject; nobody can be known by that")
    known = users.find_oidc(issuer, subject)
    if known is not None:
        return known
    is_verified = claims.get("email_verified") is True or emails_are_verified
    email = str(claims.get("email") or "").strip().lower() if is_verified else ""
    name = str(claims.get("name") or email or subject)
    is_first_admin = bool(email) and email in {one.strip().lower() for one in admins}
    added = next((user for user in users.all() if email and (user.email or "").lower() == email), None)
    if added is not None:
        bound = users.bind_oidc(added.id, issuer, subject)
        return users.set_role(bound.id, "admin") if is_first_admin else bound
    if not is_first_admin and new_users == "refuse":
        raise ForbiddenError(f"nobody has added {email or name} to this console; ask an admin to")
    role: Role = "admin" if is_first_admin else "member" if new_users == "member" else "viewer"
    try:
        return users.add(name, role=role, email=email or None, oidc=(issuer, subject))
    except ConflictError:  # another tab was first
        known = users.find_oidc(issuer, subject)
        if known is None:
            raise
        return known


def is_admin(users: Users, actor: User) -> bool:
    """As a question, for screens that leave out what would be refused."""
    return is_allowed(actor, "admin", settings=users.database.settings)


def people(users: Users, actor: User) -> list[User]:
    """Everybody, for those who may read."""
    check_allowed(actor, "read", settings=users.database.settings)
    return users.all()


def add_person(users: Users, actor: User, *, name: str, email: str, role: Role) -> User:
    """Somebody who may sign in: with OIDC by this address, or with a token that an admin makes for them.

    Raises ForbiddenError, ConfigError for a name or an address that is none, ConflictError for one that is known.
    """
    _check_admin(users, actor)
    name, email = " ".join(name.split()), email.strip().lower()
    if not name:
        raise ConfigError("a person needs a name")
    if email and (email.count("@") != 1 or email.startswith("@") or email.endswith("@") or " " in email):
        raise ConfigError(f"not an e-mail address: {email!r}; leave it empty for one who signs in with a token")
    if email and any((user.email or "").lower() == email for user in users.all()):
        raise ConflictError(f"somebody with the address {email} is there already")
    return users.add(name, role=role, email=email or None)


def set_role(users: Users, actor: User, user_id: str, role: Role) -> User:
    """Raises ForbiddenError, and ConflictError where no admin would be left."""
    _check_admin(users, actor)
    if role != "admin":
        _check_admin_is_left(users, without=user_id)
    return users.set_role(user_id, role)


def set_disabled(users: Users, actor: User, user_id: str, is_disabled: bool) -> User:
    """Whoever is disabled can do nothing; their runs go on. Raises as `set_role`."""
    _check_admin(users, actor)
    if is_disabled and user_id == actor.id:
        raise ConflictError("you cannot disable yourself; another admin can")
    if is_disabled:
        _check_admin_is_left(users, without=user_id)
    return users.set_disabled(user_id, is_disabled)


def scopes_for(users: Users, actor: User, owner: User) -> list[str]:
    """The scopes that a token of `owner` may get from `actor`: what the role allows, and no more than a token that the
    actor came with."""
    settings = users.database.settings
    allowed = [name for name in ACTIONS if is_allowed(owner, name, settings=settings)]
    return [name for name in allowed if actor.scopes is None or name in actor.scopes]


def create_token(
    users: Users, actor: User, *, owner_id: str, name: str, scopes: Iterable[str], days: int
) -> tuple[str, ApiToken]:
    """A token of one's own, or, for admins, of somebody else. Its text is told this once.

    Raises ForbiddenError, ConfigError for a name, scopes or days that cannot be.
    """
    owner = users.get(owner_id)
    if owner.id != actor.id:
        _check_admin(users, actor)
    name = " ".join(name.split())
    if not name:
        raise ConfigError("a token needs a name that tells where it is used, such as `laptop`")
    if not 1 <= days <= MAX_TOKEN_DAYS:
        raise ConfigError(f"a token is valid for 1 to {MAX_TOKEN_DAYS} days (got {days})")
    wanted, possible = frozenset(scopes), frozenset(scopes_for(users, actor, owner))
    if not wanted <= possible:
        beyond = ", ".join(sorted(wanted - possible))
        raise ForbiddenError(
            f"a token of {owner.name} cannot have the scope {beyond}; choose among {_listed(possible)}"
        )
    expires_at = datetime.fromtimestamp(users.database.now(), UTC) + timedelta(days=days)
    return users.create_token(owner.id, name, scopes=wanted, expires_at=expires_at)


def tokens(users: Users, actor: User, owner_id: str) -> list[ApiToken]:
    """Those that still work, newest first. Raises ForbiddenError for those of others, unless an admin asks."""
    if owner_id != actor.id:
        _check_admin(users, actor)
    now = datetime.fromtimestamp(users.database.now(), UTC)
    live = [each for each in users.tokens(owner_id) if each.revoked_at is None]
    return [each for each in reversed(live) if each.expires_at is None or each.expires_at > now]


def revoke_token(users: Users, actor: User, *, owner_id: str, token_id: str) -> None:
    """Raises ForbiddenError, NotFoundError for a token that is not the owner's."""
    if owner_id != actor.id:
        _check_admin(users, actor)
    if token_id not in {each.id for each in users.tokens(owner_id)}:
        raise NotFoundError("that token is not there any more")
    users.revoke_token(token_id)


def _check_admin(users: Users, actor: User) -> None:
    check_allowed(actor, "admin", settings=users.database.settings)


def _check_admin_is_left(users: Users, *, without: str) -> None:
    left = [user for user in users.all() if user.role == "admin" and not user.is_disabled and user.id != without]
    if not left:
        raise ConflictError("they are the last admin; make somebody else one first")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
