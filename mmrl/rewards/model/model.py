"""The reward `model`: a reward model scores, in a process and on a device of its own (`mmrl.engines.reward_model`)."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import IO

from mmrl.config.reward import ModelRewardConfig
from mmrl.errors import ModelError
from mmrl.rewards.base import RewardFailure, RewardItem, Score
from mmrl.rewards.model.service import Asked, Service, Waiting
from mmrl.rewards.outcome import Outcome, outcome_from

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from mmrl.engines.reward_model import serve; "
    "serve(int(sys.argv[2]))"
)
_STOP_TIMEOUT_S = 5.0


class ModelReward(Service):
    """Responses in batches to the model's process. One that dies or is too slow costs its batch, and starts anew."""

    def __init__(self, config: ModelRewardConfig) -> None:
        self._config = config
        self._process = ModelProcess(config)
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = Waiting(config.batch, self._send)
        self._sent: set[Future[Outcome]] = set()

    def open(self) -> None:
        self._process.start()

    def submit(self, items: Sequence[RewardItem]) -> list[Future[Outcome]]:
        return self._waiting.add(items)

    def flush(self) -> None:
        self._waiting.flush()

    def close(self) -> None:
        """A pass that still runs is not waited for: its process is killed."""
        self._waiting.cancel()
        for future in list(self._sent):
            future.cancel()
        self._process.kill()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        self._process.close()
        self._sent = set()

    def _send(self, batch: Sequence[Asked]) -> None:
        self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix=f"reward-{self._config.part_name}")
        self._sent |= {future for _, future in batch}
        self._thread.submit(self._score, batch)

    def _score(self, batch: Sequence[Asked]) -> None:
        began = time.perf_counter()
        try:
            results = self._process.ask([(item.sample, item.response) for item, _ in batch])
        except Exception as error:
            results = [str(error)] * len(batch)
        ms = (time.perf_counter() - began) * 1000 / len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            self._sent.discard(future)
            if future.set_running_or_notify_cancel():
                future.set_result(outcome_from(self._read(result), ms=ms))

    def _read(self, result: float | str) -> Score | RewardFailure:
        if isinstance(result, str):
            return RewardFailure(result)
        if not math.isfinite(result):
            return RewardFailure(f"the reward model gave {result}")
        value = result if self._config.transform == "none" else 1 / (1 + math.exp(-max(-700.0, result)))
        return Score(value, None, f"the model gives {result:.4g}")


class ModelProcess:
    """The trainer's end of the model's process. Starts when it is first asked."""

    def __init__(self, config: ModelRewardConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._errors: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Raises ModelError where the model does not load."""
        if self._process is not None:
            return
        self._connection, theirs = multiprocessing.Pipe()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _BOOT, json.dumps([str(one) for one in sys.path]), str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
                env=self._environment(),
            )
        problem = self._handshake()
        if problem is not None:
            self.close()
            raise ModelError(f"reward '{self._config.part_name}': {problem}")

    def ask(self, batch: list[tuple[object, str]]) -> list[float | str]:
        """A number for each, or why there is none. Raises RewardFailure or ModelError where the process fails."""
        self.start()
        assert self._connection is not None
        try:
            self._connection.send(batch)
            if self._connection.poll(self._config.timeout_s):
                results: list[float | str] = self._connection.recv()
                return results
            trouble = f"the reward model took longer than {self._config.timeout_s:g} s (timeout_s) for {len(batch)}"
        except (EOFError, OSError):
            trouble = f"the process of the reward model ended: {self._last_error()}"
        self.close()
        raise RewardFailure(trouble)

    def kill(self) -> None:
        """End the process, whatever it does; who waits for it hears of its end."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process when it has answered what it was asked."""
        if self._process is None or self._connection is None or self._errors is None:
            return
        self._connection.close()
        try:
            self._process.wait(_STOP_TIMEOUT_S if self._process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        self._process = self._connection = self._errors = None

    def _handshake(self) -> str | None:
        assert self._connection is not None
        try:
            self._connection.send(self._config)
            if self._connection.poll(self._config.load_timeout_s):
                problem: str | None = self._connection.recv()
                return problem
            return f"the model did not load within {self._config.load_timeout_s:g} s (load_timeout_s)"
        except (EOFError, OSError):
            return f"the process of the reward model ended while it loaded: {self._last_error()}"

    def _environment(self) -> dict[str, str]:
        own = {} if self._config.gpu is None else {"CUDA_VISIBLE_DEVICES": str(self._config.gpu)}
        return {**os.environ, **own}

    def _last_error(self) -> str:
        """The signal that killed the process, or the last line that it wrote to its standard error."""
        assert self._process is not None
        assert self._errors is not None
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        code = self._process.returncode
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {code}"
