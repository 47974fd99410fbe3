"""The process that serves the console: `python -m console.server ADDRESS PORT`. `mmrl console` starts it.

It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

from console.options import server_options
from console.settings import load_settings

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
_SCRIPT = Path(__file__).parent / "app.py"


def serve(address: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT. Raises ConfigError."""
    import streamlit as st

    settings = load_settings()
    app = st.App(_SCRIPT)
    app.run(config=server_options(settings, address=address, port=port))


def _end_with_parent() -> None:
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(0)


if __name__ == "__main__":
    _end_with_parent()
    serve(sys.argv[1], int(sys.argv[2]))
