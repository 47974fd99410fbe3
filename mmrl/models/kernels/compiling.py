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
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCES = ("passes.c", "group_attention.c", "attention_backward.c")
HEADERS = ("common.h",)
COMPILERS = ("gcc", "cc")
"""Looked for in this order, where the variable CC names none. Not clang: its OpenMP is another than torch's."""
TIMEOUT_S = 600.0
"""Of one call of the compiler, which takes seconds: on a machine that does much else at lowest priority, minutes."""

# Not -ffast-math, which would let a NaN go unseen and round subnormal numbers to zero in the whole process; nor
# -fno-signed-zeros alone, with which gcc takes the product of infinity and zero for zero.
_FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fopenmp", "-fPIC", "-c"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
_FLAGS_ON_X86 = ("-mprefer-vector-width=512",)

_logger = logging.getLogger(__name__)


class Compiled(NamedTuple):
    """library: None where there is none. detail: what compiled it, or why there is none."""

    library: ctypes.CDLL | None
    detail: str


@functools.cache
def compiled() -> Compiled:
    """Without a compiler, or where it fails, everything goes on through torch's own operations, and a log line says
    so."""
    try:
        compiler = _compiler()
    except ValueError as error:
        compiler, problem = [], f"CC={os.environ['CC']} is no command: {error}"
    else:
        problem = f"there is no C compiler ({', '.join(COMPILERS)})"
    if not compiler:
        found = Compiled(None, problem)
    else:
        name = " ".join(compiler)
        try:
            found = Compiled(_load(compiler), f"compiled by {name}")
        except (OSError, subprocess.SubprocessError) as error:
            output = (getattr(error, "stderr", None) or "").strip()
            found = Compiled(None, f"{name} did not compile them: {error}" + f"\n{output[-2000:]}" * bool(output))
    if found.library is None:
        _logger.warning("no kernels for this CPU, torch's operations take their place and longer: %s", found.detail)
    return found


def _compiler() -> list[str]:
    """The command and its first arguments, as CC may have some (`ccache gcc`)."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    return next(([path] for path in map(shutil.which, COMPILERS) if path is not None), [])


def _load(compiler: list[str]) -> ctypes.CDLL:
    folder, name = _cache_folder(), _name(compiler)
    kept = None if folder is None else folder / name
    if kept is not None and kept.is_file():
        try:
            return ctypes.CDLL(str(kept))
        except OSError:
            _logger.info("%s cannot be loaded and is compiled again", kept)
    with tempfile.TemporaryDirectory(prefix="kernels-", dir=folder) as work:
        built = Path(work) / name
        _compile(compiler, built)
        library = ctypes.CDLL(str(built))  # which stays when the file goes
        if kept is not None:
            # Processes that start together compile at once; each puts a whole library in place, and one that loads.
            os.replace(built, kept)
    return library


def _cache_folder() -> Path | None:
    """Of this user, whatever MMRL_HOME is; None where it cannot be written."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mmrl" / "kernels"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _name(compiler: list[str]) -> str:
    """Different for other sources, flags and processors, so that a cache that machines and versions share never gives
    one what is another's."""
    digest = hashlib.sha256(repr((compiler, _flags(), _processor())).encode())
    for source in (*SOURCES, *HEADERS):
        digest.update(_source(source).read_bytes())
    return f"kernels-{digest.hexdigest()[:16]}.so"


def _compile(compiler: list[str], library: Path) -> None:
    if "clang" in _run([*compiler, "--version"]):
        raise OSError("this is clang, whose OpenMP is another than torch's; set CC to gcc")
    objects = []
    for source in SOURCES:
        objects.append(str(library.with_name(f"{source}.o")))
        _run([*compiler, *_flags(), "-o", objects[-1], str(_source(source))])
    _run([*compiler, "-shared", "-o", str(library), *objects, "-lm"])


def _source(name: str) -> Path:
    return Path(__file__).with_name(name)


def _flags() -> tuple[str, ...]:
    return (*_FLAGS, *_FLAGS_ON_X86) if platform.machine() in ("x86_64", "AMD64") else _FLAGS


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
    return done.stdout


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return repr(os.uname())
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(("flags", "Features", "model name"))))
