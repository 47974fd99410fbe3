"""The calls of an engine or a worker as log lines with their times, which `-vv` shows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

CallT = TypeVar("CallT", bound=Callable[..., Any])

logger = logging.getLogger("mmrl.calls")


def logged_call(method: CallT) -> CallT:
    """Logs class, method and seconds at level DEBUG when the call ends, also when it raises."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not logger.isEnabledFor(logging.DEBUG):
            return method(self, *args, **kwargs)
        start = time.perf_counter()
        try:
            return method(self, *args, **kwargs)
        finally:
            logger.debug("%s.%s took %.3f s", type(self).__name__, method.__name__, time.perf_counter() - start)

    return call  # type: ignore[return-value]
