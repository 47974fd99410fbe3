"""`mmrl console` as a command: ports, what it refuses, and its processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mmrl.cli import console_processes
from mmrl.cli.console_processes import choose_port, may_start_worker
from mmrl.cli.quickstart import _result_text
from mmrl.errors import ConfigError, ConflictError, MmrlError
from mmrl.jobs.database import Database
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import WorkerInfo
from mmrl.jobs.worker.processes import host_name, own_identity


def test_a_port_that_is_taken_is_refused_or_another_one_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConflictError, match=f"port {port} of 127.0.0.1 is in use"):
            choose_port("127.0.0.1", port)
        monkeypatch.setattr(console_processes, "DEFAULT_PORT", port)
        assert choose_port("127.0.0.1", None) not in (0, port)
    assert choose_port("127.0.0.1", 0) > 0
    with pytest.raises(ConfigError, match=r"cannot listen at 192\.0\.2\.1"):
        choose_port("192.0.2.1", 0)


def test_no_second_worker_is_started_beside_one_that_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    said: list[str] = []
    with Database.open() as database:
        assert may_start_worker(database, say=said.append)
        own = own_identity()
        gone = WorkerInfo(host=host_name(), boot_id=own.boot_id, pid=own.pid, pid_start_time=own.start_time + 1)
        Leases(database).register(gone)
        assert may_start_worker(database, say=said.append)
        alive = WorkerInfo(host=host_name(), boot_id=own.boot_id, pid=own.pid, pid_start_time=own.start_time)
        worker_id = Leases(database).register(alive)
        assert not may_start_worker(database, say=said.append)
    assert said == [f"worker {worker_id} runs on this machine already; no other is started"]


def test_what_keeps_ending_is_not_started_for_ever() -> None:
    said: list[str] = []
    child = console_processes._Child("the worker", [sys.executable, "-c", "raise SystemExit(3)"], said.append)
    child.start()

    def watch() -> None:
        for _ in range(1000):
            child.restart_if_ended()
            time.sleep(0.02)

    with pytest.raises(MmrlError, match=r"the worker keeps ending \(exit code 3\)"):
        watch()
    assert said == ["the worker ended with exit code 3; it is started again"] * 5


def test_a_missing_streamlit_is_told_with_what_to_do(tmp_path: Path) -> None:
    code = (
        "import sys, importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'streamlit' else found(name, *more)\n"
        "from mmrl.cli.app import main\n"
        "sys.exit(main(['console']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "streamlit is not installed; `make quickstart` or `pip install 'mmrl[console]'`" in done.stderr


def test_the_quickstart_ends_by_naming_the_console() -> None:
    assert _result_text(0.5, 0.9, 60.0, "runs/x").splitlines()[-1].strip() == "mmrl console"
