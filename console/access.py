"""Who may reach the console at all, decided before it listens."""

from __future__ import annotations

from console.settings import ConsoleSettings, is_loopback
from mmrl.errors import ConfigError


def check_access(settings: ConsoleSettings, address: str) -> None:
    """Raises ConfigError for an address that others reach, unless people must sign in."""
    if not is_loopback(address):
        raise ConfigError(f"--address {address}: others could reach the console there without signing in")
