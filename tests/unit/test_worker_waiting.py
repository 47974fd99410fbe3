"""What wakes a worker, and when it no longer may."""

from __future__ import annotations

import os
import time
from pathlib import Path

from mmrl.jobs.worker.aside import Aside
from mmrl.jobs.worker.waiting import Waiter


def test_work_aside_wakes_who_waits_for_it() -> None:
    waiter = Waiter()
    try:
        begin = time.monotonic()
        work = Aside(lambda: 7, name="work", wake=waiter.wake)
        while not work.is_done:
            waiter.wait([], 30.0)
        assert work.result() == 7
        assert time.monotonic() - begin < 20.0
    finally:
        waiter.close()


def test_a_thread_that_was_left_behind_writes_into_no_file_opened_meanwhile(tmp_path: Path) -> None:
    waiter = Waiter()
    own = {waiter._read, waiter._write}
    waiter.close()
    files = []
    try:
        while not own <= {file.fileno() for file in files}:
            assert len(files) < 100
            files.append((tmp_path / str(len(files))).open("wb"))
        waiter.wake()
        assert [os.fstat(file.fileno()).st_size for file in files] == [0] * len(files)
    finally:
        for file in files:
            file.close()
