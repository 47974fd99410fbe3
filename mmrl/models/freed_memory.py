"""What becomes of freed memory on the host: kept for the next tensors, not given back and asked for again.

A step frees and asks for the same tensors over and over. glibc gives what lies free at the heap's end, and every large
block, back to the system at once; the next tensor of that size then has each page of it made anew, which takes as long
as writing to it.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # mallopt(3)
LARGEST_BLOCK = 32 << 20
"""Bytes from which on a block is the system's: the most that glibc takes."""
MOST_KEPT = 1 << 30
"""Bytes that may lie free at the heap's end."""


@cache
def keep_freed_memory() -> bool:
    """From now on freed memory of this process stays with it up to `MOST_KEPT`; False where that cannot be said,
    without glibc or where the environment says otherwise (`MALLOC_…_`, `GLIBC_TUNABLES`)."""
    if platform.libc_ver()[0] != "glibc":
        return False
    if any(name in os.environ for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")):
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_MMAP_THRESHOLD, LARGEST_BLOCK) and libc.mallopt(_TRIM_THRESHOLD, MOST_KEPT))
