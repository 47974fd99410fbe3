"""Attempts with a number and a token from a supervisor: one begins once, and an earlier one loses the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from runs_builders import CONFIG

from mmrl.errors import ConflictError
from mmrl.runs import layout
from mmrl.runs.ownership import AttemptClaim, read_owner, take_ownership
from mmrl.runs.writer import RunWriter


def begin(run_dir: Path, claim: AttemptClaim | None) -> RunWriter:
    return RunWriter.create(run_dir, config_yaml=CONFIG, resume=True, claim=claim)


def test_an_attempt_gets_the_number_and_token_that_it_was_given(tmp_path: Path) -> None:
    claim = AttemptClaim(3, "t3")
    layout.attempt_dir(tmp_path, 3).mkdir()
    take_ownership(tmp_path, claim, pid=None)
    writer = begin(tmp_path, claim)
    assert writer.attempt == 3
    assert writer.owns()
    assert (read_owner(tmp_path) or {})["pid"] == os.getpid()


def test_an_attempt_that_was_thought_dead_owns_nothing_once_its_successor_is_claimed(tmp_path: Path) -> None:
    first = begin(tmp_path, AttemptClaim(1, "t1"))
    take_ownership(tmp_path, AttemptClaim(2, "t2"), pid=None)
    assert not first.owns()
    with pytest.raises(ConflictError, match="attempt 2 has taken over"):
        take_ownership(tmp_path, AttemptClaim(1, "t1"), pid=None)
    assert (read_owner(tmp_path) or {})["token"] == "t2"


def test_a_trainer_that_starts_late_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    take_ownership(tmp_path, AttemptClaim(2, "t2"), pid=None)
    layout.attempt_dir(tmp_path, 2).mkdir()
    with pytest.raises(ConflictError, match="attempt 1 may not begin"):
        begin(tmp_path, AttemptClaim(1, "t1"))
    assert not layout.was_begun(tmp_path, 1)


def test_one_attempt_cannot_be_begun_twice(tmp_path: Path) -> None:
    begin(tmp_path, AttemptClaim(1, "t1"))
    with pytest.raises(ConflictError, match="begun already"):
        begin(tmp_path, AttemptClaim(1, "t1"))
    with pytest.raises(ConflictError, match="another process began it already"):
        begin(tmp_path, AttemptClaim(1, "other"))


def test_the_environment_is_read_once_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AttemptClaim(4, "t4").environment.items():
        monkeypatch.setenv(name, value)
    assert AttemptClaim.from_environment() == AttemptClaim(4, "t4")
    assert AttemptClaim.from_environment() is None
