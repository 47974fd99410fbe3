"""Which failures start a job again by themselves: those of the infrastructure, never those that would come back."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from mmrl.jobs.settings import JobsSettings

ErrorClass = Literal[
    "config", "data", "code", "out_of_memory", "launch", "worker_lost", "node_lost", "killed", "storage", "dependency"
]
"""config, data: the run refused what it was given. code: an exception in the run, or in code of the user's own.
launch: the process or the Ray job could not be started. worker_lost, node_lost: the supervisor or its machine is gone.
killed: ended by a signal that nobody of mmrl's sent. storage: the disk or the object store refused."""

INFRASTRUCTURE = frozenset({"launch", "worker_lost", "node_lost", "killed", "storage"})


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended. retryable: overrides what the class says."""

    error_class: ErrorClass
    message: str
    exit_code: int | None = None
    retryable: bool | None = None


def retry_delay(
    failure: Failure, *, retries: int, max_attempts: int, last_class: str | None, settings: JobsSettings
) -> float | None:
    """Seconds until the job starts again, None if it does not.

    retries: how often it was started again already. last_class: what ended the attempt before; memory that runs out
    twice in a row is no accident.
    """
    once = failure.error_class == "out_of_memory" and last_class != "out_of_memory"
    may = failure.error_class in INFRASTRUCTURE or once if failure.retryable is None else failure.retryable
    if not may or retries + 1 >= max_attempts:
        return None
    wait = min(settings.retry_delay_s * 2**retries, settings.max_retry_delay_s)
    return wait * random.uniform(1.0, 1.25)
