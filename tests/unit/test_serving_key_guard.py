"""Who is let in to a served model: whoever bears the key, on every path but two."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from mmrl.serving.key_guard import KeyGuard
from mmrl.serving.server import ServeSettings, command

KEY = "a-key-of-a-test"


async def _everything(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["path"].encode()})


def _status(path: str, *, method: str = "POST", **headers: str) -> int:
    async def ask() -> int:
        transport = httpx.ASGITransport(app=KeyGuard(_everything))
        async with httpx.AsyncClient(transport=transport, base_url="http://served") as client:
            return (await client.request(method, path, headers=headers)).status_code

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", KEY)


@pytest.mark.parametrize(
    "path",
    ["/", "/v1/models", "/invocations", "/tokenize", "/docs", "/metrics/x", "/healthy", "//health", "/v1/../health/x"],
)
def test_no_path_but_health_and_metrics_answers_without_the_key(path: str) -> None:
    assert _status(path) == 401
    assert _status(path, method="OPTIONS") == 401
    for wrong in ("Bearer wrong", "Bearer", KEY, f"Basic {KEY}", f"Bearer {KEY}x"):
        assert _status(path, Authorization=wrong) == 401, wrong
    assert _status(path, Authorization=f"Bearer {KEY}") == 200
    assert _status(path, Authorization=f"bearer {KEY}") == 200


def test_health_and_metrics_answer_anybody() -> None:
    assert [_status(path, method="GET") for path in ("/health", "/metrics")] == [200, 200]


def test_nobody_is_let_in_where_no_key_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_API_KEY")
    for bearer in ("Bearer ", "Bearer", f"Bearer {KEY}"):
        assert _status("/v1/models", Authorization=bearer) == 401


def test_a_websocket_without_the_key_is_closed_before_it_opens() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def connect() -> None:
        await KeyGuard(_everything)({"type": "websocket", "path": "/v1/realtime", "headers": []}, None, send)  # type: ignore[arg-type]

    asyncio.run(connect())
    assert [each["type"] for each in sent] == ["websocket.close"]


def test_a_server_with_a_key_stands_behind_the_guard_and_shows_no_key_in_its_command() -> None:
    guarded = command(ServeSettings(Path("m"), "m", key=KEY), 1, on_cpu=True)
    place = guarded.index("--middleware")
    assert guarded[place + 1] == f"{KeyGuard.__module__}.{KeyGuard.__qualname__}"
    assert not any(KEY in word for word in guarded)
    assert "--middleware" not in command(ServeSettings(Path("m"), "m"), 1, on_cpu=True)
