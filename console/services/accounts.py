"""Who signed in with OIDC. What people may see and change of accounts is in `mmrl.jobs.accounts`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mmrl.errors import ConflictError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import Role, User
from mmrl.jobs.users import Users


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
