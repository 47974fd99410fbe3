"""How the console is set: `MMRL_HOME/console.yaml` and `MMRL_CONSOLE_<FIELD>`, the environment over the file."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Literal

from pydantic import Field

from mmrl.config.base import ConfigModel, home
from mmrl.config.settings_file import read_settings

FILE_NAME = "console.yaml"
_PREFIX = "MMRL_CONSOLE_"


class ConsoleSettings(ConfigModel):
    max_upload_mb: int = Field(200, ge=1, le=400)
    """Largest upload through the browser, in MB. It is held in memory meanwhile; larger data is added by its path."""
    data_roots: tuple[str, ...] = ()
    """Folders of the server that data sets may be added from by their path."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names by which browsers may reach the console, such as that of a reverse proxy."""
    serve_host: str = Field("127.0.0.1", min_length=1)
    """Where servers of the Playground listen; `worker` is the address under which others reach the worker's machine."""
    session_h: float = Field(12.0, gt=0, le=720)
    """Hours after which one who signed in with a password or a token is asked again."""
    admins: tuple[str, ...] = ()
    """With OIDC: e-mail addresses whose owners become admins when they first sign in."""
    emails_are_verified: bool = False
    """With OIDC: take the provider's word for addresses of which it does not say that they are verified."""
    new_users: Literal["refuse", "viewer", "member"] = "refuse"
    """With OIDC: the role of those who sign in and whom nobody has added; `refuse` sends them away."""


def folder() -> Path:
    """Where the console keeps its key, its password's hash and its OIDC secrets."""
    return home() / "console"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches a server at that address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def load_settings(path: Path | None = None) -> ConsoleSettings:
    """The settings from the file (default: `console.yaml` in mmrl's home, which need not exist) and the environment.

    Raises ConfigError that names the file and the variables.
    """
    file = path if path is not None else home() / FILE_NAME
    return read_settings(ConsoleSettings, file, prefix=_PREFIX, what="the console")
