"""What pages would wait for, done once while the server starts."""

from __future__ import annotations

import gc
import importlib
import logging
import pkgutil

import console.components
import console.services

_PAGES_OWN = ("mmrl.jobs.operating",)
"""What a page names and no component or service does."""


def load_what_pages_need() -> None:
    """Their modules: a second for whoever opened the first page. And all that these hold is put beyond the collector of
    garbage, which Streamlit calls after each run of a script, live parts included: 0.12 s of processor time each.

    Before the server answers, and not in a thread beside it: two threads that load modules which load each other may
    see them half loaded.
    """
    for package in (console.services, console.components):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            _load(module.name)
    for name in _PAGES_OWN:
        _load(name)
    gc.collect()
    gc.freeze()


def _load(name: str) -> None:
    """One that cannot be loaded stops the pages that need it, which tell so, and not the server."""
    try:
        importlib.import_module(name)
    except Exception:
        logging.getLogger(__name__).exception("%s cannot be loaded", name)
