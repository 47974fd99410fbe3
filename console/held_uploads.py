"""Uploads that Streamlit holds in memory, from when they arrive until a page has put them on disk.

Streamlit limits one file; here all that it holds at once is limited, whoever it is of, so that no number of uploads
takes the memory that the console needs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import IOBase
from typing import IO

MOST_HELD_MB = 400
"""Of all people together."""
TOO_MUCH = (
    f"The console holds up to {MOST_HELD_MB} MB of uploads at a time, of all people together. Nothing was added. Wait "
    "until the others are checked, or give larger data by its path on the server, an s3:// address, or hf://NAME@SPLIT."
)


class Room:
    """What may still come. Those on their way count as if they were there."""

    def __init__(self, most_bytes: int = MOST_HELD_MB * 1_000_000) -> None:
        self._most_bytes = most_bytes
        self._coming = 0
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, num_bytes: int) -> Iterator[bool]:
        """Whether so much may come; while it does, it counts."""
        with self._lock:
            has_room = held_bytes() + self._coming + num_bytes <= self._most_bytes
            self._coming += num_bytes if has_room else 0
        try:
            yield has_room
        finally:
            with self._lock:
                self._coming -= num_bytes if has_room else 0


def held_bytes() -> int:
    """Bytes of uploads in this process's memory."""
    from streamlit.runtime import exists, get_instance
    from streamlit.runtime.stats import CacheStat

    if not exists():
        return 0
    stats = get_instance().uploaded_file_mgr.get_stats()
    return sum(stat.byte_length for family in stats.values() for stat in family if isinstance(stat, CacheStat))


def let_go(key: str, files: Iterable[IO[bytes]]) -> None:
    """Forgets what the viewer uploaded in this tab; for when it is on disk.

    key, files: of the uploader, and what it gave. Streamlit holds on to its value until a page is drawn whole, which a
    person who goes on quickly does not wait for: so that is closed.
    """
    import streamlit as st
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx()
    if context is not None:
        context.uploaded_file_mgr.remove_session_files(context.session_id)
        held = st.session_state.to_dict().get(key) or ()
        for file in (*files, *held):
            if isinstance(file, IOBase):  # Streamlit tells of files that are gone by another type
                file.close()
