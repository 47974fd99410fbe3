"""What ranks leave in shared memory, removed once nothing of their run lives."""

from __future__ import annotations

import mmap
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mmrl import shared_memory

HOURS_S = 7200.0


@pytest.fixture
def port() -> Iterator[str]:
    """A port that no run has."""
    name = f"test{secrets.token_hex(4)}"
    yield name
    for path in shared_memory.FOLDER.glob(f"{shared_memory.prefix_of(name)}*"):
        path.unlink()


def left(port: str, rank: int, *, age_s: float = 0.0) -> Path:
    path = shared_memory.FOLDER / f"{shared_memory.prefix_of(port)}tp:0-[0-1]-cpushm_{rank}"
    path.write_bytes(bytes(4096))
    os.utime(path, (time.time() - age_s, time.time() - age_s))
    return path


def test_what_a_run_left_goes_and_that_of_others_stays(port: str) -> None:
    own, others = left(port, 0), left(f"{port}1", 0)
    try:
        assert shared_memory.remove(port) == [own.name]
        assert others.exists()
    finally:
        others.unlink()


def test_memory_that_a_process_uses_is_no_runs_that_is_gone(port: str) -> None:
    used, stale, young = left(port, 0, age_s=HOURS_S), left(port, 1, age_s=HOURS_S), left(port, 2)
    with used.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), 4096)
    assert stale.name in shared_memory.remove_stale()
    assert (used.exists(), stale.exists(), young.exists()) == (True, False, True)
    assert shared_memory.remove(port) == [young.name]
    memory.close()
    assert used.name in shared_memory.remove_stale()


def test_what_another_account_left_is_passed_over(port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = left(port, 0, age_s=HOURS_S)
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)
    assert shared_memory.remove(port) == []
    assert path.name not in shared_memory.remove_stale()
    monkeypatch.undo()
    assert shared_memory.remove(port) == [path.name]


def test_a_rank_removes_what_a_rank_of_its_number_left(port: str) -> None:
    left(port, 0)
    own = left(port, 1)
    assert shared_memory.remove(port, rank=1) == [own.name]
