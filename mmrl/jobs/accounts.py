"""People, their roles and tokens, as whoever asks may see and change them; console and commands call the same.

Every function that changes something takes who asks, and checks them here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

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


def is_admin(users: Users, actor: User) -> bool:
    """As a question, for screens that leave out what would be refused."""
    return is_allowed(actor, "admin", settings=users.database.settings)


def people(users: Users, actor: User) -> list[User]:
    """Everybody, for those who may read."""
    check_allowed(actor, "read", settings=users.database.settings)
    return users.all()


def find_user(users: Users, ref: str) -> User:
    """The user with this id, or the only one of this name or address. Raises NotFoundError."""
    everybody = users.all()
    wanted = ref.strip().lower()
    found = [user for user in everybody if user.id == ref] or [
        user for user in everybody if wanted in (user.name.lower(), (user.email or "").lower())
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise NotFoundError(f"{len(found)} users are called {ref!r}; give one by id: {_listed(u.id for u in found)}")
    raise NotFoundError(f"no user {ref!r}; there are {_listed(user.name for user in everybody)}")


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
    return users.set_role(user_id, role)


def set_disabled(users: Users, actor: User, user_id: str, is_disabled: bool) -> User:
    """Whoever is disabled can do nothing; their runs go on. Raises as `set_role`."""
    _check_admin(users, actor)
    if is_disabled and user_id == actor.id:
        raise ConflictError("you cannot disable yourself; another admin can")
    return users.set_disabled(user_id, is_disabled)


def may_change_tokens(actor: User) -> bool:
    """Whether the actor may make tokens and revoke them: one who has come by a token could prolong it for ever, and
    shut the owner out, unless it was made for administering."""
    return actor.scopes is None or "admin" in actor.scopes


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

    days: valid for so long, and no longer than the token that the actor came with.
    Raises ForbiddenError, ConfigError for a name, scopes or days that cannot be.
    """
    owner = users.get(owner_id)
    _check_tokens(actor)
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
    if actor.token_expires_at is not None:
        expires_at = min(expires_at, actor.token_expires_at)
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
    _check_tokens(actor)
    if owner_id != actor.id:
        _check_admin(users, actor)
    if token_id not in {each.id for each in users.tokens(owner_id)}:
        raise NotFoundError("that token is not there any more")
    users.revoke_token(token_id)


def _check_admin(users: Users, actor: User) -> None:
    check_allowed(actor, "admin", settings=users.database.settings)


def _check_tokens(actor: User) -> None:
    if not may_change_tokens(actor):
        raise ForbiddenError(
            f"{actor.name} came with a token, which makes and revokes no others without the scope admin; do it at the "
            "machine of the job database, sign in another way, or ask an admin"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
