"""Identifiers that sort by the time at which they were made (UUID version 7, RFC 9562)."""

from __future__ import annotations

import secrets
import threading
import uuid

SHORT_LENGTH = 8

_lock = threading.Lock()
_last_ticks = 0
_MAX_AHEAD = 4_096_000 * 10


def new_id(now: float) -> str:
    """A UUIDv7 as text. now: seconds since 1970 by the database's clock.

    The first 48 bits are milliseconds, the next 12 the fraction of one. Ids that one process makes sort in the order
    in which it made them, also where the clock is coarser, or is set back a little.
    """
    global _last_ticks
    ticks = int(now * 4_096_000)
    with _lock:
        if _last_ticks - _MAX_AHEAD < ticks <= _last_ticks:
            ticks = _last_ticks + 1
        _last_ticks = ticks
    milliseconds, fraction = divmod(ticks, 4096)
    value = milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


def short_id(job_id: str) -> str:
    """The last characters: random ones, unlike the first, which jobs of the same minute share."""
    return job_id[-SHORT_LENGTH:]
