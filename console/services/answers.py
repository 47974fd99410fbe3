"""Answers under way: each asked for by a thread of the console's process, and read by whoever looks at the page.

A page may be closed meanwhile; the answer goes on and is in the conversation's file. Addresses and keys stay here.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from console.services.conversations import Conversation, Reply, Sampling, read, update, with_reply
from mmrl.data.images import ImageStore
from mmrl.errors import MmrlError
from mmrl.serving.endpoint import Endpoint
from mmrl.types import ImagePart, Message, TextPart

_SAVE_S = 1.0
_LOOK_S = 0.05
_CONNECT_S = 10.0
_SILENCE_S = 600.0
"""The longest wait for the next word: a busy server lets requests wait."""
_AT_ONCE = 32
_Key = tuple[str, int, int]


class Answers:
    """Shared by all sessions of a console."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._live: dict[_Key, _Answer] = {}
        self._lock = threading.Lock()

    def start(self, conversation: Conversation, turn: int, endpoints: Sequence[Endpoint | None]) -> None:
        """Asks each column's server for its reply of a turn; a column without one fails with a sentence."""
        store = ImageStore()
        for column, endpoint in enumerate(endpoints):
            if endpoint is None:
                reply = Reply(state="failed", error="its server did not answer when this was asked")
                self._keep(conversation.id, turn, column, reply)
                continue
            try:
                body = request_body(
                    endpoint, conversation.prompt(turn, column), conversation.turns[turn].sampling, store
                )
            except MmrlError as error:
                self._keep(conversation.id, turn, column, Reply(state="failed", error=str(error)))
                continue
            self._start_one((conversation.id, turn, column), endpoint, body)

    def stop(self, conversation_id: str) -> None:
        """All answers of a conversation end where they are; their servers stop as well."""
        for key, answer in self._of(conversation_id):
            answer.stop()
            answer.join(5.0)
            self._live.pop(key, None)
        self._settle(conversation_id)

    def is_writing(self, conversation_id: str) -> bool:
        return bool(self._of(conversation_id))

    def now(self, conversation: Conversation) -> Conversation:
        """The conversation with what was written since its file was. Of answers that nobody writes any more, since the
        console was ended, it says so."""
        if not conversation.turns:
            return conversation
        last = len(conversation.turns) - 1
        for column, reply in enumerate(conversation.turns[last].replies):
            if reply.state != "writing":
                continue
            live = self._live.get((conversation.id, last, column))
            shown = live.reply if live is not None else self._ended(conversation.id, last, column, reply)
            conversation = with_reply(conversation, last, column, shown)
        return conversation

    def _ended(self, conversation_id: str, turn: int, column: int, reply: Reply) -> Reply:
        """Of an answer that nobody writes: its end is in the file by now, if it had one."""
        with contextlib.suppress(MmrlError, IndexError):
            reply = read(self._root, conversation_id).turns[turn].replies[column]
        if reply.state != "writing":
            return reply
        return replace(reply, state="failed", error="the console was ended while this was being answered; ask again")

    def settle(self, conversation_id: str) -> None:
        """Ends in its file what nobody writes any more, so that it can be gone on with."""
        if not self.is_writing(conversation_id):
            self._settle(conversation_id)

    def _settle(self, conversation_id: str) -> None:
        with contextlib.suppress(MmrlError):
            before = read(self._root, conversation_id)
            if self.now(before) != before:
                update(self._root, conversation_id, self.now)

    def _start_one(self, key: _Key, endpoint: Endpoint, body: Mapping[str, Any]) -> None:
        with self._lock:
            if len(self._live) >= _AT_ONCE:
                self._keep(
                    *key, Reply(state="failed", error=f"{_AT_ONCE} answers are under way already; ask again later")
                )
                return
            answer = _Answer(endpoint, body, keep=lambda reply: self._keep(*key, reply), over=lambda: self._over(key))
            self._live[key] = answer
        answer.start()

    def _over(self, key: _Key) -> None:
        self._live.pop(key, None)

    def _of(self, conversation_id: str) -> list[tuple[_Key, _Answer]]:
        return [(key, answer) for key, answer in list(self._live.items()) if key[0] == conversation_id]

    def _keep(self, conversation_id: str, turn: int, column: int, reply: Reply) -> None:
        with contextlib.suppress(MmrlError, IndexError):  # the conversation was removed meanwhile
            update(self._root, conversation_id, lambda now: with_reply(now, turn, column, reply))


class _Answer(threading.Thread):
    """keep: called about once a second, and with the end. over: called after the last `keep`."""

    def __init__(self, endpoint: Endpoint, body: Mapping[str, Any], *, keep: Any, over: Any) -> None:
        super().__init__(name="mmrl answer", daemon=True)
        self.reply = Reply()
        self._endpoint, self._body, self._keep, self._is_over = endpoint, body, keep, over
        self._stop_asked = threading.Event()

    def stop(self) -> None:
        self._stop_asked.set()

    def run(self) -> None:
        begun = time.monotonic()
        try:
            state, error = asyncio.run(self._stream())
        except Exception as problem:  # whatever a server does ends this answer only
            state, error = "failed", told(problem)
        seconds = round(time.monotonic() - begun, 2)
        self.reply = replace(self.reply, state=state, error=error, seconds=seconds)  # type: ignore[arg-type]
        self._keep(self.reply)
        self._is_over()

    async def _stream(self) -> tuple[str, str | None]:
        """Reads until the end, or until it is to stop; then the request is dropped, and the server stops too."""
        task = asyncio.ensure_future(self._read())
        saved = time.monotonic()
        while not task.done():
            if self._stop_asked.is_set():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                return "stopped", None
            if time.monotonic() - saved > _SAVE_S:
                self._keep(self.reply)
                saved = time.monotonic()
            await asyncio.wait([task], timeout=_LOOK_S)
        task.result()
        return "done", None

    async def _read(self) -> None:
        async for piece in stream(self._endpoint, self._body):
            now = self.reply
            self.reply = replace(
                now,
                text=now.text + piece.text,
                finish_reason=piece.finish_reason or now.finish_reason,
                num_tokens=piece.num_tokens if piece.num_tokens is not None else now.num_tokens,
            )


@dataclass(frozen=True)
class Piece:
    """A part of an answer as the server sends it."""

    text: str = ""
    finish_reason: str | None = None
    num_tokens: int | None = None


def request_body(
    endpoint: Endpoint, messages: Sequence[Message], sampling: Sampling, store: ImageStore
) -> dict[str, Any]:
    """Images go along as data; no server fetches anything. Raises NotFoundError for an image that is gone."""
    return {
        "model": endpoint.model,
        "messages": [{"role": each.role, "content": _content(each, store)} for each in messages],
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "max_tokens": sampling.max_tokens,
        **({"seed": sampling.seed} if sampling.seed is not None else {}),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def stream(endpoint: Endpoint, body: Mapping[str, Any]) -> AsyncIterator[Piece]:
    """Pieces as they come. Raises httpx's errors, with the server's own words for a request that it refuses."""
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    timeout = httpx.Timeout(_SILENCE_S, connect=_CONNECT_S)
    url = f"{endpoint.url}/v1/chat/completions"
    async with (
        httpx.AsyncClient(timeout=timeout, trust_env=False) as client,
        client.stream("POST", url, json=body, headers=headers) as response,
    ):
        if response.status_code != 200:
            raise ServerRefusalError(_message(await response.aread(), response.status_code))
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                yield _piece(json.loads(data))


class ServerRefusalError(Exception):
    """What a server answered in place of an answer."""


def told(error: Exception) -> str:
    """For people, without the server's address."""
    if isinstance(error, ServerRefusalError):
        return str(error)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return "the server does not answer any more; start it again"
    if isinstance(error, httpx.TimeoutException):
        return f"the server said nothing for {_SILENCE_S:.0f} s"
    return f"the answer broke off ({type(error).__name__}); the server's log tells more"


def _content(message: Message, store: ImageStore) -> Any:
    if message.role == "assistant":
        return message.text
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else _image(part, store)
        for part in message.content
    ]


def _image(part: ImagePart, store: ImageStore) -> dict[str, Any]:
    data = store.read(part.image)
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}}


def _piece(data: Mapping[str, Any]) -> Piece:
    if "error" in data:
        raise ServerRefusalError(str((data["error"] or {}).get("message", "the server failed")))
    choice = (data.get("choices") or [{}])[0]
    usage = data.get("usage") or {}
    text = (choice.get("delta") or {}).get("content") or ""
    return Piece(text, choice.get("finish_reason"), usage.get("completion_tokens"))


def _message(content: bytes, status: int) -> str:
    try:
        data = json.loads(content)
        return str((data.get("error") or data).get("message") or data)[:2000]
    except (ValueError, AttributeError):
        return f"the server refused the question (status {status})"
