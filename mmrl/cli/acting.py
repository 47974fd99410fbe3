"""Who a command acts for: the admin that this machine's account is, or whom the token in MMRL_TOKEN speaks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmrl.jobs.database import Database
    from mmrl.jobs.records import User


def token_user(database: Database) -> User | None:
    """Whom MMRL_TOKEN speaks for; None where it is not set. Raises ForbiddenError for a token that is not valid, and
    for none: a secret that came out empty must not make an admin of whoever was to have it."""
    from mmrl.jobs.errors import ForbiddenError
    from mmrl.jobs.users import TOKEN_VARIABLE, Users

    text = os.environ.get(TOKEN_VARIABLE)
    if text is None:
        return None
    if not text.strip():
        raise ForbiddenError(f"{TOKEN_VARIABLE} is set and empty; give a token, or unset it to act as this account")
    try:
        return Users(database).authenticate(text)
    except ForbiddenError as error:
        raise ForbiddenError(f"{TOKEN_VARIABLE}: {error}, or unset the variable to act as this account") from error


def actor_of(database: Database) -> User:
    """The same, or the user of this machine's account, whom this call makes known. Raises as `token_user`."""
    from mmrl.jobs.users import Users

    return token_user(database) or Users(database).local()
