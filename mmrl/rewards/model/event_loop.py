"""An asyncio event loop in a thread of its own, for rewards that wait for others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

_JOIN_TIMEOUT_S = 5.0


class LoopThread:
    """Runs coroutines beside the caller's thread. Starts when it is first needed, and again after `close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def submit(self, coroutine: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._running())

    def cancel_all(self) -> None:
        """Cancel what still runs, and wait for its end."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(_JOIN_TIMEOUT_S)

    def close(self) -> None:
        """End the thread and whatever runs in it."""
        if self._loop is None or self._thread is None:
            return
        self.cancel_all()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_TIMEOUT_S)
        self._loop.close()
        self._loop = self._thread = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
            self._thread.start()
        return self._loop


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
