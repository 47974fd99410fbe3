"""The process that serves the console: `python -m console.server ADDRESS PORT`. `mmrl console` starts it.

It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import sys
from pathlib import Path

from console.access import access_at
from console.gate import gate, gate_routes
from console.options import server_options
from console.passwords import load_key
from console.settings import load_settings

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_SCRIPT = Path(__file__).parent / "app.py"


def serve(address: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT. Raises ConfigError."""
    settings = load_settings()
    options = server_options(settings, address=address, port=port)
    os.environ["STREAMLIT_SERVER_COOKIE_SECRET"] = hashlib.sha256(b"streamlit" + load_key()).hexdigest()
    import streamlit as st

    from console.warming import load_what_pages_need

    load_what_pages_need()
    middleware = gate(access_at(address), options["server.allowedHosts"])
    app = st.App(_SCRIPT, middleware=middleware, routes=gate_routes())
    app.run(config=options)


def _end_with_parent() -> None:
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    _end_with_parent()
    serve(sys.argv[1], int(sys.argv[2]))
