"""Who may reach the console: nobody signs in where only this machine reaches it, and nobody gets in elsewhere without.

`mmrl console` refuses to start where that is not so; the server and every page decide it anew by the same function.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

from console.passwords import PASSWORD_VARIABLE, load_password
from console.settings import ConsoleSettings, folder, is_loopback
from mmrl.errors import ConfigError
from mmrl.jobs.users import Users

_OIDC_KEYS = ("client_id", "client_secret", "server_metadata_url")


class Access(StrEnum):
    """open: whoever reaches it is this machine's account. closed: nobody may enter."""

    OPEN = "open"
    PASSWORD = "password"
    OIDC = "oidc"
    CLOSED = "closed"


def access_at(address: str | None) -> Access:
    """How people get in at an address; None is all of this machine's. Raises ConfigError for wrong settings."""
    if oidc_file() is not None:
        return Access.OIDC
    if load_password() is not None:
        return Access.PASSWORD
    return Access.OPEN if address is not None and is_loopback(address) else Access.CLOSED


def check_access(settings: ConsoleSettings, address: str, users: Users) -> Access:
    """Raises ConfigError for an address that others reach, unless people must sign in, and where OIDC would let nobody
    administer it."""
    access = access_at(address)
    if access is Access.CLOSED:
        raise ConfigError(
            f"--address {address}: others could reach the console there, and nothing makes them sign in. Set a "
            f"password (`mmrl console --set-password`, or {PASSWORD_VARIABLE} in the environment), or OIDC in "
            f"{folder() / 'secrets.toml'}; see docs/console.md"
        )
    if access is Access.OIDC:
        has_admin = any(user.role == "admin" and user.email and not user.is_disabled for user in users.all())
        if not settings.admins and not has_admin:
            raise ConfigError(
                "with OIDC nobody could administer the console: name the first admin in console.yaml, such as "
                "`admins: [you@example.org]`"
            )
    return access


def oidc_file() -> Path | None:
    """The file with Streamlit's [auth] section; None where there is none.

    Raises ConfigError, without any of its values, for one that lacks something.
    """
    file = folder() / "secrets.toml"
    try:
        auth: Any = tomllib.loads(file.read_text(encoding="utf-8")).get("auth")
    except FileNotFoundError:
        return None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read as TOML; mend it or remove it") from error
    if not isinstance(auth, dict):
        raise ConfigError(f"{file} has no section [auth]; add it, or remove the file")
    provider = next((value for value in auth.values() if isinstance(value, dict)), auth)
    missing = [f"auth.{key}" for key in ("redirect_uri", "cookie_secret") if not auth.get(key)]
    missing += [f"auth.{key}" for key in _OIDC_KEYS if not provider.get(key)]
    if missing:
        raise ConfigError(f"{file} lacks {', '.join(missing)}; see docs/console.md")
    return file


def oidc_provider() -> str | None:
    """The name of a provider of its own section, as `st.login` wants it; None where the section [auth] is the one."""
    file = oidc_file()
    auth: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))["auth"] if file is not None else {}
    return next((name for name, value in auth.items() if isinstance(value, dict)), None)
