"""The end of an attempt's logs on its way to the store in which people read them."""

from __future__ import annotations

from collections.abc import Callable

from mmrl.errors import MmrlError
from mmrl.jobs.worker.aside import Aside
from mmrl.runs.mirror import is_address
from mmrl.runs.run_logs import bring_logs

LONGEST_S = 30.0
"""How long a job's end waits for its logs: a store that is away or hangs keeps no job, and no GPU, for longer."""


class LastLogs:
    """Of one attempt, brought once. say: is told why they are not there."""

    def __init__(self, run_dir: str, attempt: int, say: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._attempt = attempt
        self._say = say
        self._transfer: Aside[None] | None = None
        self._is_over = not is_address(run_dir)

    def are_over(self) -> bool:
        """Whether the job need not wait for them any more; begins to bring them when it is first asked."""
        if self._is_over:
            return True
        if self._transfer is None:
            self._transfer = Aside(lambda: bring_logs(self._run_dir, self._attempt), name="mmrl-logs")
        if not self._transfer.is_done and self._transfer.seconds < LONGEST_S:
            return False
        self._is_over = True
        self._tell(self._transfer)
        return True

    def _tell(self, transfer: Aside[None]) -> None:
        if not transfer.is_done:
            self._say(f"the end of its logs is not in its store after {LONGEST_S:.0f} s; the job ends without waiting")
            return
        try:
            transfer.result()
        except (OSError, MmrlError) as error:
            self._say(f"the end of its logs stays on this machine: {error}")
