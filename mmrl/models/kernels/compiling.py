"""The kernels' library: compiled for this machine's processor when a process first wants it, then taken from a cache.

It is linked against no OpenMP of its own but takes torch's, which is in the process already: two of them would have two
pools of threads that take the cores from each other.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCES = ("passes.c", "group_attention.c", "attention_backward.c")
HEADERS = ("common.h",)
COMPILERS = ("cc", "gcc", "clang")
"""Looked for in this order, where the variable CC names none."""
TIMEOUT_S = 120.0

# Not -ffast-math, which would let a NaN go unseen and round subnormal numbers to zero in the whole process.
_FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fopenmp", "-fPIC", "-c"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
)
_FLAGS_OF_GCC = ("-mprefer-vector-width=512",)

_logger = logging.getLogger(__name__)


class Compiled(NamedTuple):
    """library: None where there is none. detail: what compiled it, or why there is none."""

    library: ctypes.CDLL | None
    detail: str


@functools.cache
def compiled() -> Compiled:
    """Without a compiler, or where it fails, everything goes on through torch's own operations, and a log line says
    so."""
    compiler = os.environ.get("CC") or next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        found = Compiled(None, f"there is no C compiler ({', '.join(COMPILERS)})")
    else:
        try:
            found = Compiled(_load(compiler), f"compiled by {compiler}")
        except (OSError, subprocess.SubprocessError) as error:
            output = (getattr(error, "stderr", None) or "").strip()
            found = Compiled(None, f"{compiler} did not compile them: {error}" + f"\n{output[-2000:]}" * bool(output))
    if found.library is None:
        _logger.warning("no kernels for this CPU, torch's operations take their place and longer: %s", found.detail)
    return found


def _load(compiler: str) -> ctypes.CDLL:
    folder, name = _cache_folder(), _name(compiler)
    if folder is not None and (folder / name).is_file():
        try:
            return ctypes.CDLL(str(folder / name))
        except OSError:
            _logger.info("%s cannot be loaded and is compiled again", folder / name)
    with tempfile.TemporaryDirectory(prefix="kernels-", dir=folder) as work:
        built = Path(work) / name
        _compile(compiler, built)
        if folder is None:
            return ctypes.CDLL(str(built))  # which stays when the file goes
        # Processes that start together compile at once; each puts a whole library in place.
        os.replace(built, folder / name)
    return ctypes.CDLL(str(folder / name))


def _cache_folder() -> Path | None:
    """Of this user, whatever MMRL_HOME is; None where it cannot be written."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmrl" / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _name(compiler: str) -> str:
    """Different for other sources, flags and processors, so that a cache that machines and versions share never gives
    one what is another's."""
    digest = hashlib.sha256(repr((compiler, _flags_of(compiler), _processor())).encode())
    for source in (*SOURCES, *HEADERS):
        digest.update(_source(source).read_bytes())
    return f"kernels-{digest.hexdigest()[:16]}.so"


def _compile(compiler: str, library: Path) -> None:
    objects = []
    for source in SOURCES:
        objects.append(str(library.with_name(f"{source}.o")))
        _run([compiler, *_flags_of(compiler), "-o", objects[-1], str(_source(source))])
    _run([compiler, "-shared", "-o", str(library), *objects, "-lm"])


def _source(name: str) -> Path:
    return Path(__file__).with_name(name)


def _flags_of(compiler: str) -> tuple[str, ...]:
    return _FLAGS if "clang" in Path(compiler).name else (*_FLAGS, *_FLAGS_OF_GCC)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return repr(os.uname())
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("flags", "Features", "model name"))))
