"""Requests to stop a run: by signal, by file, the first and the second."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from mmrl.errors import RunCancelledError
from mmrl.runs.stopping import StopRequest, request_stop


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_first_signal_waits_for_the_step_and_the_second_does_not(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path)
    with stop.listening(), stop.between_steps():
        assert not stop.is_requested
        terminate()
        assert stop.is_requested
        with pytest.raises(RunCancelledError, match="stopped by SIGTERM"):
            terminate()
    assert stop.state == "cancelled"


def test_a_signal_before_the_first_step_ends_the_run_at_once(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path)
    with stop.listening(), pytest.raises(RunCancelledError):
        terminate()


def test_a_file_is_a_request_where_no_signal_comes_with_it(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path)
    request_stop(tmp_path, "pause", with_signal=True)
    assert not stop.is_requested, "the signal is still to come"
    assert stop.state == "paused"
    request_stop(tmp_path, "cancel")
    assert stop.is_requested
    assert stop.state == "cancelled"
    with pytest.raises(RunCancelledError, match="cancelled on request after step 3, with a checkpoint"):
        stop.raise_after(3, is_saved=True)


def test_the_handler_of_before_is_put_back(tmp_path: Path) -> None:
    earlier = signal.getsignal(signal.SIGTERM)
    with StopRequest(tmp_path).listening():
        assert signal.getsignal(signal.SIGTERM) is not earlier
    assert signal.getsignal(signal.SIGTERM) is earlier
