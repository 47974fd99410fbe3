"""The processes behind `mmrl console`: the server and its worker, started, watched and ended together.

The server ends with this process, however that ends. The worker and its runs outlive a kill: the next console, or any
worker of this machine, goes on with them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from console.passwords import PASSWORD_VARIABLE
from mmrl.errors import ConfigError, ConflictError, MmrlError
from mmrl.jobs.database import Database

DEFAULT_PORT = 8501
_START_S = 60.0
_GRACE_S = 10.0
_LOOK_S = 0.2
_MOST_RESTARTS = 5
_RESTARTS_WITHIN_S = 600.0

Say = Callable[[str], None]


class ConsoleProcesses:
    """port: a free one. say: for notes to people."""

    def __init__(self, address: str, port: int, *, with_worker: bool, say: Say) -> None:
        self.url = f"http://{_shown(address)}:{port}"
        self._health = f"http://{_shown(address, is_asked=True)}:{port}/_stcore/health"
        self._with_worker = with_worker
        self._say = say
        self._wake = threading.Event()
        self._num_signals = 0
        self._server = _Child("the console", [sys.executable, "-m", "console.server", address, str(port)], say)
        worker = [sys.executable, "-m", "mmrl", "worker", "start", "--drain", "handover"]
        self._worker = _Child("the worker", worker, say, without=(PASSWORD_VARIABLE,))

    def run(self, *, on_ready: Callable[[str], None]) -> None:
        """Until SIGTERM or Ctrl-C. on_ready: told the address once it answers.

        Raises MmrlError for a server that does not come up, or that keeps ending.
        """
        with self._heeding_signals():
            try:
                self._server.start()
                if not self._wait_until_healthy():
                    return
                on_ready(self.url)
                if self._with_worker:
                    self._worker.start()
                while not self._num_signals:
                    self._server.restart_if_ended()
                    self._worker.restart_if_ended()
                    self._pause()
            finally:
                self._server.end(_GRACE_S)
                self._end_worker()

    def _wait_until_healthy(self) -> bool:
        """False where a signal came first."""
        deadline = time.monotonic() + _START_S
        while not self._num_signals:
            code = self._server.exit_code()
            if code is not None:
                raise MmrlError(f"the console ended with exit code {code} before it answered; its message stands above")
            if _answers(self._health):
                return True
            if time.monotonic() > deadline:
                raise MmrlError(f"the console did not answer at {self._health} within {_START_S:.0f} s")
            self._pause()
        return False

    def _end_worker(self) -> None:
        """The first signal hands runs over; a further one to this process makes the worker leave them."""
        if not self._worker.is_running:
            return
        self._say("ending: runs write a checkpoint and go back to the queue; Ctrl-C again leaves them running")
        self._worker.send(signal.SIGTERM)
        num_heeded = max(1, self._num_signals)
        while self._worker.is_running:
            if self._num_signals > num_heeded:
                num_heeded = self._num_signals
                for _ in range(2):
                    self._worker.send(signal.SIGTERM)
                    time.sleep(_LOOK_S)
            self._pause()

    def _pause(self) -> None:
        self._wake.wait(_LOOK_S)
        self._wake.clear()

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        def heed(*_: object) -> None:
            self._num_signals += 1
            self._wake.set()

        earlier = {number: signal.signal(number, heed) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)


class _Child:
    """A process of a session of its own, so that a Ctrl-C reaches it through its parent only."""

    def __init__(self, name: str, words: list[str], say: Say, *, without: tuple[str, ...] = ()) -> None:
        """without: variables of the environment that it does not get."""
        self.name = name
        self._words = words
        self._say = say
        self._environment = {name: value for name, value in os.environ.items() if name not in without}
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts: list[float] = []

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            self._words, stdin=nothing, stdout=nothing, start_new_session=True, env=self._environment
        )

    def restart_if_ended(self) -> None:
        """Starts it again where it ended by itself. Raises MmrlError where that happens too often."""
        code = self.exit_code()
        if code is None:
            return
        now = time.monotonic()
        self._restarts = [at for at in self._restarts if now - at < _RESTARTS_WITHIN_S] + [now]
        if len(self._restarts) > _MOST_RESTARTS:
            raise MmrlError(f"{self.name} keeps ending (exit code {code}); its messages stand above")
        self._say(f"{self.name} ended with exit code {code}; it is started again")
        self.start()

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(number)

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        if self._process is None:
            return
        self.send(signal.SIGTERM)
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def choose_port(address: str, wanted: int | None) -> int:
    """The port to listen at: the one wanted; 0 is any free one; None is the default, or a free one where it is taken.

    Raises ConflictError for a port in use, ConfigError for an address that is not this machine's.
    """
    if wanted is not None:
        return _bound_port(address, wanted)
    try:
        return _bound_port(address, DEFAULT_PORT)
    except ConflictError:
        return _bound_port(address, 0)


def may_start_worker(database: Database, *, say: Say) -> bool:
    """False, and a note, where a worker of this machine takes jobs of the default pool already."""
    from mmrl.jobs.pools import Fleet
    from mmrl.jobs.worker.processes import ProcessIdentity, host_name

    for worker in Fleet(database).workers():
        process = ProcessIdentity(worker.pid, worker.pid_start_time, worker.boot_id)
        if worker.host == host_name() and worker.pool == "default" and worker.state == "active" and process.is_alive:
            say(f"worker {worker.id} runs on this machine already; no other is started")
            return False
    return True


def _bound_port(address: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            found: int = probe.getsockname()[1]
            return found
    except socket.gaierror as error:
        raise ConfigError(f"--address {address}: {error.strerror}; use an address of this machine") from error
    except OSError as error:
        if error.strerror and "in use" in error.strerror:
            raise ConflictError(
                f"port {port} of {address} is in use; give another --port, or 0 for a free one"
            ) from error
        raise ConfigError(
            f"cannot listen at {address}:{port}: {error.strerror}; give another --address or --port"
        ) from error


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _shown(address: str, *, is_asked: bool = False) -> str:
    """The address in a URL. is_asked: one to ask this very server at, where it listens at all of the machine's."""
    if address in ("0.0.0.0", "::"):
        own = "127.0.0.1" if address == "0.0.0.0" else "[::1]"
        return own if is_asked else socket.gethostname()
    return f"[{address}]" if ":" in address else address
