"""Lets in whoever bears the key: put around vLLM's server, in its process. Imports neither torch nor vllm.

vLLM asks for its key under some prefixes only, such as /v1; /invocations, /tokenize and others answer anybody.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

KEY_VARIABLE = "VLLM_API_KEY"
OPEN_PATHS = frozenset({"/health", "/metrics"})
"""What tells whether the server lives and how much it does, and nothing of what was asked."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class KeyGuard:
    """An ASGI application around another. Requests to any path but OPEN_PATHS must bear `Authorization: Bearer KEY`,
    KEY being the environment's. Without a key there nobody is let in."""

    def __init__(self, app: App) -> None:
        key = os.environ.get(KEY_VARIABLE, "")
        self._app = app
        self._digest = _digest(key.encode()) if key else None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        is_request = scope["type"] in ("http", "websocket")
        if not is_request or scope["path"] in OPEN_PATHS or self._bears_key(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "no key"})
        else:
            await _refuse(send)

    def _bears_key(self, scope: Message) -> bool:
        given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
        if self._digest is None or len(given) != 1:
            return False
        scheme, _, key = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and secrets.compare_digest(_digest(key.strip()), self._digest)


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": {"message": "the key is missing or wrong", "type": "unauthorized", "code": 401}})
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
