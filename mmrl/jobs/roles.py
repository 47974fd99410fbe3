"""Who may do what: one table, and one function that decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from mmrl.errors import ConfigError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import Role, User
from mmrl.jobs.settings import JobsSettings

ACTIONS: Mapping[str, Role] = MappingProxyType(
    {
        "read": "viewer",
        "label": "member",
        "submit": "member",
        "control": "member",
        "data": "member",
        "code": "admin",
        "admin": "admin",
    }
)
"""The least role for each action. label: to judge samples. submit: new jobs. control: cancel, pause, resume and retry
jobs of one's own. data: add data sets. code: submit configs that run code
of their own, read secrets or ask servers. admin: users, tokens of others,
pools, workers, jobs of others."""

_RANK: Mapping[str, int] = MappingProxyType({"viewer": 0, "member": 1, "admin": 2})


def check_allowed(user: User, action: str, *, settings: JobsSettings, owner_id: str | None = None) -> None:
    """Raises ForbiddenError unless the user may do this. owner_id: whose job it is about, for action control."""
    reason = _refusal(user, action, settings, owner_id)
    if reason is not None:
        raise ForbiddenError(f"{user.name} may not {_WORDS[action]}: {reason}")


def is_allowed(user: User, action: str, *, settings: JobsSettings, owner_id: str | None = None) -> bool:
    """The same as a question, for screens that hide what would be refused."""
    return _refusal(user, action, settings, owner_id) is None


def check_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Raises ConfigError for a scope that is no action, and for none at all."""
    found = frozenset(scopes)
    unknown = sorted(found - ACTIONS.keys())
    if unknown or not found:
        raise ConfigError(f"scopes of a token: got {', '.join(unknown) or 'none'}; choose among {', '.join(ACTIONS)}")
    return found


def _refusal(user: User, action: str, settings: JobsSettings, owner_id: str | None) -> str | None:
    least = ACTIONS[action]
    if user.is_disabled:
        return "the account is disabled; ask an admin"
    if user.scopes is not None and action not in user.scopes:
        return f"the token's scopes are {', '.join(sorted(user.scopes))}; use one with the scope {action}"
    if action == "code" and settings.members_may_run_code:
        least = "member"
    if action == "control" and owner_id not in (None, user.id) and not settings.members_control_all:
        least = "admin"
    if _RANK[user.role] < _RANK[least]:
        return f"it takes the role {least}, and theirs is {user.role}; ask an admin"
    return None


_WORDS = {
    "read": "read",
    "label": "label samples",
    "submit": "submit jobs",
    "control": "change this job",
    "data": "add data sets",
    "code": "submit a config that runs code of its own, reads secrets or asks servers",
    "admin": "administer",
}
