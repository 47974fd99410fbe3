"""How `mmrl console` and its worker end: runs are handed over, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from console_process import ConsoleProcess
from job_rows import new_job

from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.pools import Fleet

PATIENCE_S = 60.0


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(f"{url}/_stcore/health", timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def test_ending_the_console_hands_its_runs_over(start_console: Callable[..., Any]) -> None:
    console: ConsoleProcess
    console, home = start_console("empty", "--worker")
    config = {"name": "long", "kind": "noop", "noop": {"steps": 100_000, "step_s": 0.1}}
    with home.active(), Database.open() as database:
        jobs = Jobs(database)
        job = jobs.submit(new_job("long", config=config))
        wait_until(lambda: jobs.get(job.id).step > 2, "the run does not come on")
        assert console.end() == 0
        ended = jobs.get(job.id)
        assert (ended.state, ended.attempt) == ("queued", 1)
        assert jobs.checkpoints(job.id)[-1].step >= 2
        assert Fleet(database).workers() == []
    assert "runs write a checkpoint and go back to the queue" in console.log.read_text()


def test_a_console_that_is_killed_takes_its_server_along_and_leaves_its_worker(
    start_console: Callable[..., Any],
) -> None:
    console: ConsoleProcess
    console, home = start_console("empty", "--worker")
    with home.active(), Database.open() as database:
        wait_until(lambda: bool(Fleet(database).workers()), "no worker starts")
        (worker,) = Fleet(database).workers()
        try:
            console.process.send_signal(signal.SIGKILL)
            console.process.wait(20)
            wait_until(lambda: not answers(console.url), "the server lives on")
            os.kill(worker.pid, 0)
        finally:
            os.kill(worker.pid, signal.SIGTERM)
        wait_until(lambda: not Fleet(database).workers(), "the worker does not end")
