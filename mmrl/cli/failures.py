"""How a command ends when something goes wrong: one clear message on stderr and an exit code, no traceback.

What a user can mend is an MmrlError and speaks for itself. A full disk, memory that ran out and a missing package
are told in plain words. All else is a bug: its traceback goes to a file, or to stderr under -vv.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mmrl.cli.logs import is_debugging
from mmrl.errors import EXIT_FAILED, MmrlError, RunFailedError

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def run_under_way(run_dir: Path | str) -> Iterator[None]:
    """Around the training itself: what goes wrong in here makes the command end as a failed run."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted; mmrl train with the same settings and --run-dir {run_dir} goes on", file=sys.stderr)
        raise
    except MmrlError:
        raise
    except Exception as error:
        raise RunFailedError(describe(error, sys.argv[1:], folder=run_dir)) from error


def report_failure(error: Exception, words: Sequence[str]) -> int:
    """Tell the error on stderr and return the exit code. `words` are the command line."""
    from mmrl.runs.inert import inert, without_blobs

    message = str(error) if isinstance(error, MmrlError) else describe(error, words)
    if "disk" not in message and any(_is_full_disk(one) for one in _chain(error)):
        message = f"disk full: {message}"
    if is_debugging():
        traceback.print_exception(error, file=sys.stderr)
    print(f"error: {inert(without_blobs(message))}", file=sys.stderr)
    return error.exit_code if isinstance(error, MmrlError) else EXIT_FAILED


def describe(error: Exception, words: Sequence[str], *, folder: Path | str | None = None) -> str:
    """What went wrong and what to do. `folder` is where the failing command was writing, if that is known."""
    chain = list(_chain(error))
    full = next((one for one in chain if _is_full_disk(one)), None)
    if full is not None:
        path = getattr(full, "filename", None) or folder
        return f"disk full: no space left to write {path or 'the output'}; free some space, or write elsewhere"
    if any(isinstance(one, MemoryError) or type(one).__name__ == "OutOfMemoryError" for one in chain):
        return (
            f"out of memory: {_one_line(error)}; lower train.micro_batch_tokens, rollout.max_batch_rows "
            "or data.image.max_pixels"
        )
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("mmrl"):
        return (
            f"the Python package {error.name.partition('.')[0]!r} is not installed; `mmrl doctor` tells what is missing"
        )
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    where = "traceback above" if is_debugging() else f"traceback in {_write_log(error, words)}; -vv shows it here"
    return f"{type(error).__name__}: {_one_line(error)}\nthis is a bug in mmrl, or in code that it was given ({where})"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _is_full_disk(error: BaseException) -> bool:
    """Writers in compiled code raise their own errors, with the system's words in the text."""
    return getattr(error, "errno", None) in _FULL_DISK or os.strerror(errno.ENOSPC) in str(error)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    return text if len(text) <= 300 else f"{text[:299]}…"


def _write_log(error: Exception, words: Sequence[str]) -> str:
    """The file with the traceback: in MMRL_HOME/logs or, where that cannot be written, among the temporary files."""
    from mmrl.config.base import home

    name = f"error-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}.log"
    text = f"mmrl {' '.join(_shown(words))}\n\n{''.join(traceback.format_exception(error))}"
    for folder in (home() / "logs", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        except OSError:
            continue
        return str(folder / name)
    return "no file, since none could be written"


def _shown(words: Sequence[str]) -> list[str]:
    """The command line without the values of secrets."""
    from mmrl.config.secrets import redact_under

    pairs = [word.partition("=") for word in words]
    return [f"{key}{equals}{redact_under(key, value)}" for key, equals, value in pairs]
