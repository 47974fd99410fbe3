"""A small OpenID Connect provider on 127.0.0.1: whoever asks is signed in at once, as whom the test named."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID, CLIENT_SECRET = "mmrl", "fake-client-secret"


@dataclass
class Provider:
    """person: the claims of whoever signs in next."""

    url: str
    person: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(
        default_factory=lambda: RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256", "kid": "one"}, private=True)
    )
    nonces: dict[str, str] = field(default_factory=dict)

    @property
    def metadata_url(self) -> str:
        return f"{self.url}/.well-known/openid-configuration"

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/openid-configuration", self._metadata),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/keys", self._keys),
        ]

    def _metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    def _keys(self, _request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    def _authorize(self, request: Request) -> Response:
        asked = request.query_params
        code = secrets.token_hex(8)
        self.nonces[code] = asked.get("nonce", "")
        answer = urlencode({"code": code, "state": asked["state"]})
        return RedirectResponse(f"{asked['redirect_uri']}?{answer}", 302)

    async def _token(self, request: Request) -> Response:
        code = str((await request.form())["code"])
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 600, "nonce": self.nonces.pop(code)}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims | self.person, self.key)
        return JSONResponse({"access_token": "fake-access", "token_type": "Bearer", "id_token": token})


@contextmanager
def oidc_provider(port: int) -> Iterator[Provider]:
    provider = Provider(f"http://127.0.0.1:{port}")
    config = uvicorn.Config(Starlette(routes=provider.routes()), host="127.0.0.1", port=port, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        end = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < end, "the provider did not start"
            time.sleep(0.05)
        yield provider
    finally:
        server.should_exit = True
        thread.join(20)
