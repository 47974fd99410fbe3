"""What goes wrong in a worker, on its way to the controller: captured there as data, raised here as an error."""

from __future__ import annotations

import pickle
import time
import traceback
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from mmrl.cluster.base import WorkerContext
from mmrl.errors import MmrlError, RunFailedError


class WorkerTraceback(Exception):
    """The traceback in a worker's process, as the cause of an error raised on the controller."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True)
class Failure:
    """An exception that a worker's method raised.

    time_s: when, on the worker's clock. pickled: an MmrlError as `pickle_error` wrote it, None for any other exception.
    """

    group: str
    method: str
    rank: int
    pool: str
    kind: str
    message: str
    traceback: str
    pickled: bytes | None = None
    time_s: float = field(default_factory=time.time)

    @property
    def where(self) -> str:
        return f"{self.group}.{self.method} on rank {self.rank} of pool {self.pool!r}"


def capture(error: BaseException, context: WorkerContext, *, group: str, method: str) -> Failure:
    """The exception as data that can be sent, whatever it holds."""
    return Failure(
        group,
        method,
        context.rank,
        context.pool,
        kind=type(error).__name__,
        message=_text_of(error),
        traceback="".join(traceback.format_exception(_without_own_frames(error))).strip(),
        pickled=pickle_error(error) if isinstance(error, MmrlError) else None,
    )


def error_of(failure: Failure) -> MmrlError:
    """The error to raise on the controller.

    An MmrlError is raised as what it was, with its attributes, and with the worker named at the end of its message;
    anything else as a RunFailedError with the traceback in its message.
    """
    cause = WorkerTraceback(failure.traceback)
    error = None if failure.pickled is None else unpickle_error(failure.pickled)
    if error is None:
        error = RunFailedError(
            f"{failure.where} raised {failure.kind}: {failure.message}\n\n{_indented(failure.traceback)}"
        )
    else:
        error.args = (f"{failure.message} ({failure.where})", *error.args[1:])
    error.__cause__ = cause
    return error


def pickle_error(error: BaseException) -> bytes:
    """Class, arguments and attributes, without those that cannot be sent. Its constructor is not called again, so that
    any signature will do."""
    state = {name: value for name, value in vars(error).items() if _can_be_sent(value)}
    args = tuple(value if _can_be_sent(value) else repr(value) for value in error.args)
    return cloudpickle.dumps((type(error), args, state))


def unpickle_error(pickled: bytes) -> MmrlError | None:
    """The error, or None where its class is not to be had here."""
    try:
        kind, args, state = pickle.loads(pickled)
        error: MmrlError = kind.__new__(kind, *args)
    except Exception:
        return None
    error.args = args
    vars(error).update(state)
    return error


def _can_be_sent(value: Any) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(value))
    except Exception:
        return False
    return True


def _text_of(error: BaseException) -> str:
    try:
        return str(error) or "no message"
    except Exception:
        return "its message cannot be read"


def _without_own_frames(error: BaseException) -> BaseException:
    """The traceback from the worker's method on: how the call got there is always the same."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and "/mmrl/cluster/" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return error.with_traceback(trace)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
