"""Asking an HTTP service, and what is done about its faults. Runs inside an event loop.

A request waits for one of `concurrency` slots and for its turn (`requests_per_minute`), then has `timeout_s` for all of
its tries. What may pass (429, 5xx, a lost connection, a slow answer, an answer that is no JSON) is tried again after a
growing, jittered wait; a server's Retry-After holds every request back. Anything else fails at once.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mmrl.config.reward_http import HttpRewardConfig
from mmrl.config.secrets import is_in_home, read_reference, referenced_file, referenced_variable, without
from mmrl.errors import ConfigError
from mmrl.rewards.base import RewardFailure

if TYPE_CHECKING:
    import httpx

RETRIED_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

_EXCERPT = 200


@dataclass(frozen=True)
class Reply:
    """body: the parsed JSON. retries: further tries that it took. ms: milliseconds from its turn on."""

    body: Any
    retries: int
    ms: float


class _Passing(Exception):
    """A fault that may pass. retry_after_s: what the server asked for."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class HttpClient:
    """Posts JSON to one address. Building it checks the config; connections are made inside the event loop.

    Raises:
        ConfigError: the environment variable of the key is not set.
    """

    def __init__(self, config: HttpRewardConfig, *, path: str = "") -> None:
        self._config = config
        self._url = config.url + path
        self._host = urlsplit(config.url).netloc
        self._key = read_key(config)
        self._pace = _Pace(60.0 / config.requests_per_minute if config.requests_per_minute else 0.0)
        self._slots: asyncio.Semaphore | None = None
        self._client: httpx.AsyncClient | None = None

    async def post(self, payload: Callable[[], Any]) -> Reply:
        """payload: makes what is posted, once its turn has come; it may raise RewardFailure instead.

        Raises:
            RewardFailure: tells of the service's last fault.
        """
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._config.concurrency)
        async with self._slots:
            content = json.dumps(payload()).encode()
            await self._pace.turn()
            faults: list[str] = []
            began = time.perf_counter()
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    body = await self._with_retries(content, faults)
            except TimeoutError:
                last = f"; its last fault: {faults[-1]}" if faults else ""
                raise RewardFailure(
                    f"{self._host} gave no answer within {self._config.timeout_s:g} s (timeout_s){last}"
                ) from None
            return Reply(body, len(faults), (time.perf_counter() - began) * 1000)

    async def close(self) -> None:
        """Connections end; the next request makes new ones, also in another event loop."""
        client, self._client, self._slots = self._client, None, None
        if client is not None:
            await client.aclose()

    async def _with_retries(self, content: bytes, faults: list[str]) -> Any:
        while True:
            try:
                return await self._try(content)
            except _Passing as fault:
                faults.append(str(fault))
                if len(faults) > self._config.retries:
                    tries = f"{len(faults)} tries" if len(faults) > 1 else "1 try"
                    raise RewardFailure(f"{self._host} failed after {tries}: {fault}") from None
                if fault.retry_after_s > self._config.timeout_s:
                    asked = f"it asks to wait {fault.retry_after_s:g} s, over timeout_s {self._config.timeout_s:g}"
                    raise RewardFailure(f"{self._host}: {asked} ({fault})") from None
                self._pace.pause(fault.retry_after_s)
                await asyncio.sleep(max(fault.retry_after_s, self._wait_s(len(faults))))
            await self._pace.turn()

    def _wait_s(self, num_faults: int) -> float:
        """Doubling with each fault, and half of it by chance, so that requests do not come back all at once."""
        longest = min(self._config.backoff_s * 2 ** (num_faults - 1), self._config.max_backoff_s)
        return longest * random.uniform(0.5, 1.0)

    async def _try(self, content: bytes) -> Any:
        import httpx

        try:
            async with (
                asyncio.timeout(self._config.try_timeout_s),
                self._connected().stream("POST", self._url, content=content) as response,
            ):
                body = await self._read(response)
        except TimeoutError:
            raise _Passing(f"no answer within {self._config.try_timeout_s:g} s (try_timeout_s)") from None
        except httpx.RequestError as error:
            raise _Passing(f"the connection failed ({type(error).__name__}: {error})") from None
        if response.status_code in RETRIED_STATUS:
            fault = f"status {response.status_code}: {self._excerpt(body)}"
            raise _Passing(fault, retry_after_s=retry_after_s(response.headers.get("retry-after")))
        if response.status_code != 200:
            raise RewardFailure(f"{self._host} answered with status {response.status_code}: {self._excerpt(body)}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise _Passing(f"its answer is no JSON: {self._excerpt(body)}") from None

    async def _read(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._config.max_reply_mb * 2**20:
                raise RewardFailure(f"{self._host} sent more than {self._config.max_reply_mb:g} MiB (max_reply_mb)")
        return bytes(body)

    def _connected(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            headers = {"Content-Type": "application/json"}
            if self._key is not None:
                headers["Authorization"] = f"Bearer {self._key}"
            limits = httpx.Limits(max_connections=self._config.concurrency)
            self._client = httpx.AsyncClient(headers=headers, timeout=None, limits=limits)
        return self._client

    def _excerpt(self, body: bytes) -> str:
        """The beginning of what came, on one line; some servers repeat the key that they refuse."""
        text = " ".join(body[: 4 * _EXCERPT].decode(errors="replace").split())[:_EXCERPT]
        return without(text, frozenset({self._key} if self._key else ())) or "(nothing)"


class _Pace:
    """Spaces the beginnings of requests, and holds all of them back while the server asks for it."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._next_at = 0.0

    async def turn(self) -> None:
        now = time.monotonic()
        start = max(now, self._next_at)
        self._next_at = start + self._interval_s
        if start > now:
            await asyncio.sleep(start - now)

    def pause(self, seconds: float) -> None:
        self._next_at = max(self._next_at, time.monotonic() + seconds)


def read_key(config: HttpRewardConfig) -> str | None:
    """The key that `api_key` refers to. Raises ConfigError where its variable is not set or its file not readable."""
    if config.api_key is None:
        return None
    key = read_reference(config.api_key)
    if not key:
        raise ConfigError(
            f"reward '{config.part_name}': api_key refers to {_unread(config.api_key)}; "
            f"set it where the run starts, or leave api_key out for a server that needs none"
        )
    return key


def _unread(reference: str) -> str:
    variable, file = referenced_variable(reference), referenced_file(reference)
    if variable is not None:
        return f"the environment variable {variable}, which is not set"
    if file is not None and is_in_home(file):
        return f"{reference}, which lies in mmrl's home, from where no key is sent"
    return f"{reference}, not readable"


def retry_after_s(header: str | None) -> float:
    """Seconds of a Retry-After header, which gives seconds or a date; 0 without one that can be read."""
    if header is None:
        return 0.0
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
