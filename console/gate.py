"""What stands before Streamlit: it lets nobody to a page, an upload or an image who has not signed in.

Streamlit's own routes for media and uploads ask nothing; here every request is looked at first, websockets included.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from urllib.parse import parse_qs, quote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.access import Access
from console.held_uploads import TOO_MUCH, Room
from console.sessions import COOKIE, Session, SignInNeededError, Tries, of_cookie, sign_in, to_cookie, user_of
from console.settings import load_settings
from console.sign_in_page import POLICY, sign_in_page
from mmrl.errors import MmrlError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import DatabaseUnavailableError, ForbiddenError
from mmrl.jobs.users import Users

SIGN_IN = "/sign-in"
_HEALTH = "/_stcore/health"
_UPLOADS = "/_stcore/upload_file/"
_PRIVATE = ("/media/", _UPLOADS)
_MOST_BYTES = 10_000
_ASK_AGAIN_S = 20.0
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
}


def gate(access: Access, allowed_hosts: list[str]) -> list[Middleware]:
    return [Middleware(Gate, access=access, allowed_hosts=allowed_hosts)]


def gate_routes() -> list[Route]:
    door = _Door()
    return [
        Route(SIGN_IN, door.show, methods=["GET"]),
        Route(SIGN_IN, door.enter, methods=["POST"]),
    ]


class Gate:
    """Refuses unknown names of this server, and whoever is not signed in. Only its health is told to all."""

    def __init__(self, app: ASGIApp, access: Access, allowed_hosts: list[str]) -> None:
        self._app = app
        self._access = access
        self._hosts = frozenset(allowed_hosts)
        self._known = _Known()
        self._room = Room()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = await self._refusal(HTTPConnection(scope))
        if refusal is None and scope.get("method") == "PUT" and scope["path"].startswith(_UPLOADS):
            await self._upload(scope, receive, send)
        elif refusal is None:
            await self._app(scope, receive, _with_headers(send, scope["path"]))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await refusal(scope, receive, send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One that says how large it is, as browsers do, and that finds room."""
        length = HTTPConnection(scope).headers.get("content-length", "")
        with self._room.taken(int(length) if length.isdecimal() else 0) as has_room:
            if not length.isdecimal():
                await PlainTextResponse("Say how large it is.\n", 411)(scope, receive, send)
            elif not has_room:
                await PlainTextResponse(TOO_MUCH + "\n", 413)(scope, receive, send)
            else:
                await self._app(scope, receive, _with_headers(send, scope["path"]))

    async def _refusal(self, connection: HTTPConnection) -> Response | None:
        path = connection.url.path
        host = (urlsplit(f"//{connection.headers.get('host', '')}").hostname or "").lower()
        if path == _HEALTH:
            return None
        if host not in self._hosts:
            words = "This server has no such name. If it should, add the name to allowed_hosts in console.yaml.\n"
            return PlainTextResponse(words, 400)
        if self._access is Access.OPEN or path == SIGN_IN:
            return None
        if self._access is Access.CLOSED:
            return PlainTextResponse("Nobody may enter: set a password or OIDC, then start the console anew.\n", 403)
        is_private = path.startswith(_PRIVATE)
        try:
            if self._access is Access.PASSWORD:
                session = of_cookie(connection.cookies.get(COOKIE))
                key, is_known = session.id, lambda: _is_user(session)
            else:
                key, is_known = _oidc_check(connection)
        except SignInNeededError:
            # With OIDC people sign in on a page of Streamlit's.
            return _to_sign_in(connection) if is_private or self._access is Access.PASSWORD else None
        if is_private and not await run_in_threadpool(self._known.ask, key, is_known):
            return PlainTextResponse("Sign in first.\n", 401)
        return None


class _Known:
    """Whether people are still who may enter, asked of the database at most every `_ASK_AGAIN_S` for each."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, bool]] = {}

    def ask(self, key: str, is_known: Callable[[], bool]) -> bool:
        now = time.monotonic()
        until, answer = self._answers.get(key, (0.0, False))
        if until < now:
            answer = is_known()
            self._answers = {one: found for one, found in self._answers.items() if found[0] > now}
            self._answers[key] = (now + _ASK_AGAIN_S, answer)
        return answer


class _Door:
    """Where people sign in."""

    def __init__(self) -> None:
        self._tries = Tries()

    async def show(self, request: Request) -> Response:
        return _page(goes_to=_own_path(request.query_params.get("goes_to")))

    async def enter(self, request: Request) -> Response:
        client = request.client.host if request.client else ""
        if not _is_from_here(request):
            return PlainTextResponse("Sign in on the console's own page.\n", 403)
        body = await request.body()
        form = parse_qs(body[:_MOST_BYTES].decode("utf-8", "replace"))
        goes_to = _own_path(next(iter(form.get("goes_to", [])), None))
        wait_s = self._tries.wait_s(client)
        if wait_s > 0:
            words = f"Too many tries. Try again in {math.ceil(wait_s / 60)} minutes."
            return _page(goes_to=goes_to, problem=words, status=429)
        secret = next(iter(form.get("secret", [])), "")
        try:
            cookie = await run_in_threadpool(_cookie_for, secret)
        except ForbiddenError:
            self._tries.note(client)
            return _page(goes_to=goes_to, problem="That is not the password, nor a token that is valid.", status=403)
        except DatabaseUnavailableError:
            return _page(goes_to=goes_to, problem="The job database does not answer. Try again soon.", status=503)
        answer = RedirectResponse(goes_to, status_code=303)
        _set_cookie(answer, request, cookie)
        return answer


def _cookie_for(secret: str) -> str:
    with Database.open() as database:
        return to_cookie(sign_in(Users(database), secret))


def _set_cookie(answer: Response, request: Request, cookie: str) -> None:
    max_age_s = round(load_settings().session_h * 3600)
    is_secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, cookie, max_age=max_age_s, path="/", httponly=True, samesite="lax", secure=is_secure)


def _page(*, goes_to: str, problem: str | None = None, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
    return HTMLResponse(sign_in_page(goes_to=goes_to, problem=problem), status, headers=headers)


def _to_sign_in(connection: HTTPConnection) -> Response:
    wants_page = "text/html" in connection.headers.get("accept", "")
    if connection.scope.get("method") != "GET" or not wants_page:
        return PlainTextResponse("Sign in first.\n", 401)
    asked = connection.url.path + (f"?{connection.url.query}" if connection.url.query else "")
    return RedirectResponse(f"{SIGN_IN}?goes_to={quote(asked, safe='')}", status_code=303)


def _own_path(text: str | None) -> str:
    """A path of this server to go to; the first page for anything that could lead elsewhere."""
    parts = urlsplit(text or "/")
    is_own = not parts.scheme and not parts.netloc and parts.path.startswith("/") and "\\" not in (text or "")
    is_plain = is_own and not parts.path.startswith("//") and all(char.isprintable() for char in text or "")
    return (text or "/") if is_plain and parts.path != SIGN_IN else "/"


def _is_from_here(request: Request) -> bool:
    """Whether a form was sent by a page of this server. Browsers always say so."""
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")


def _is_user(session: Session) -> bool:
    try:
        with Database.open() as database:
            return not user_of(Users(database), session).is_disabled
    except MmrlError:
        return False


def _oidc_check(connection: HTTPConnection) -> tuple[str, Callable[[], bool]]:
    """Who the cookie of Streamlit's own sign-in names, and how to ask whether they may enter. Raises
    SignInNeededError where it is not there, or was not signed here."""
    from streamlit.web.server.starlette.starlette_server_config import USER_COOKIE_NAME
    from streamlit.web.server.starlette.starlette_websocket import _get_signed_cookie_with_chunks

    cookie = _get_signed_cookie_with_chunks(connection.cookies, USER_COOKIE_NAME)
    if not cookie:
        raise SignInNeededError("nobody is signed in")
    claims = json.loads(cookie)
    issuer, subject = str(claims.get("iss")), str(claims.get("sub"))

    def is_known() -> bool:
        try:
            with Database.open() as database:
                user = Users(database).find_oidc(issuer, subject)
        except MmrlError:
            return False
        return user is not None and not user.is_disabled

    return f"{issuer} {subject}", is_known


def _with_headers(send: Send, path: str) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            if path.startswith("/media/"):
                headers["Cache-Control"] = "private, no-store"
        await send(message)

    return add
