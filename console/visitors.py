"""Who looks at a page: this machine's account, or whoever signed in."""

from __future__ import annotations

from typing import Any

import streamlit as st

from console.access import Access, access_at
from console.services.accounts import oidc_user
from console.sessions import COOKIE, ENDED, SignInNeededError, of_cookie, user_of
from console.settings import load_settings
from mmrl.errors import NotFoundError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import User
from mmrl.jobs.users import Users, local_id


def access() -> Access:
    """How people get into the server that this page is of."""
    return access_at(st.get_option("server.address"))


def visitor(users: Users) -> User:
    """As the database knows them now. Raises SignInNeededError, ForbiddenError for whoever may not enter."""
    way = access()
    if way is Access.CLOSED:
        raise ForbiddenError("nobody may enter: set a password or OIDC, then start the console anew")
    if way is Access.OPEN:
        return _account(users)
    if way is Access.PASSWORD:
        return user_of(users, of_cookie(st.context.cookies.get(COOKIE)))
    if not is_signed_in_with_oidc():
        raise SignInNeededError("nobody is signed in")
    settings = load_settings()
    claims: dict[str, Any] = st.user.to_dict()
    return oidc_user(
        users,
        claims,
        admins=settings.admins,
        new_users=settings.new_users,
        emails_are_verified=settings.emails_are_verified,
    )


def is_signed_in_with_oidc() -> bool:
    return bool(getattr(st.user, "is_logged_in", False))


def sign_out() -> None:
    """Ends the sign-in of this browser: it is worth nothing from now on, whoever has its cookie."""
    if access() is Access.OIDC:
        st.logout()
    elif access() is Access.PASSWORD:
        ENDED.add(of_cookie(st.context.cookies.get(COOKIE)))
        st.rerun()


def _account(users: Users) -> User:
    """Read, where it is there already: to make it takes the database's lock."""
    try:
        return users.get(local_id())
    except NotFoundError:
        return users.local()
