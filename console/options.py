"""What Streamlit's server is told. Nothing is left to its own defaults that bears on who may see what."""

from __future__ import annotations

import socket
from typing import Any

import psutil

from console.settings import ConsoleSettings, folder, is_loopback
from console.theme import theme_options

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::", "")


def server_options(settings: ConsoleSettings, *, address: str, port: int) -> dict[str, Any]:
    """Options by their dotted names, over any file or variable that Streamlit would read."""
    return {
        "server.address": address,
        "server.port": port,
        "server.headless": True,
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.allowedHosts": allowed_hosts(address, settings),
        "secrets.files": [str(folder() / "secrets.toml")],
        "server.maxUploadSize": settings.max_upload_mb,
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "server.fileWatcherType": "none",
        "server.runOnSave": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "viewer",
        "browser.gatherUsageStats": False,
        "runner.magicEnabled": False,
        **theme_options(),
    }


def allowed_hosts(address: str, settings: ConsoleSettings) -> list[str]:
    """The names in a request's Host that are answered: another name is that of a page that only points here."""
    names = [*_LOOPBACK_NAMES, *settings.allowed_hosts]
    if address in _EVERYWHERE:
        names += [socket.gethostname(), socket.getfqdn(), *_own_addresses()]
    elif not is_loopback(address):
        names.append(address)
    return list(dict.fromkeys(name.lower() for name in names))


def _own_addresses() -> list[str]:
    kinds = (socket.AF_INET, socket.AF_INET6)
    found = [one.address for many in psutil.net_if_addrs().values() for one in many if one.family in kinds]
    return [address.partition("%")[0] for address in found]
