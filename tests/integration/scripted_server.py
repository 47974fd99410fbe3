"""A real HTTP server on a free port whose answers are scripted, faults included."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Answer:
    """status, body (JSON unless it is bytes) and headers; slow_s: wait before it; drop: end the connection instead."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    slow_s: float = 0.0
    drop: bool = False


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: Any
    at: float


class ScriptedServer:
    """`script(number, request)` gives the answer to the request with that number, counted from 0."""

    def __init__(self, script: Callable[[int, Request], Answer]) -> None:
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._at_once = 0
        self._script = script
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                owner.answer(self)

            def log_message(self, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        request = Request(handler.path, dict(handler.headers), body, time.monotonic())
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            self._send(handler, self._script(number, request))
        finally:
            with self._lock:
                self._at_once -= 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer) -> None:
        time.sleep(answer.slow_s)
        handler.close_connection = answer.drop
        if answer.drop:
            return
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        try:
            handler.send_response(answer.status)
            for name, value in {"Content-Length": str(len(content)), **answer.headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
        except OSError:
            return


@contextmanager
def serving(script: Callable[[int, Request], Answer]) -> Iterator[ScriptedServer]:
    server = ScriptedServer(script)
    try:
        yield server
    finally:
        server.close()
