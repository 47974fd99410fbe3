"""Signing in with OpenID Connect, against a provider of the test's own."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from console_process import ConsoleProcess, console_process
from oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider
from playwright.sync_api import Page, expect

SECRETS = """
[auth]
redirect_uri = "{console}/oauth2callback"
cookie_secret = "fake-cookie-secret-of-the-test"
client_id = "{client_id}"
client_secret = "{client_secret}"
server_metadata_url = "{metadata_url}"
"""
ADMIN = {"sub": "1", "name": "Ada", "email": "ada@example.org", "email_verified": True}
STRANGER = {"sub": "2", "name": "Eve", "email": "eve@example.org", "email_verified": True}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def provider() -> Iterator[Provider]:
    with oidc_provider(free_port()) as found:
        yield found


@pytest.fixture
def console(tmp_path: Path, provider: Provider) -> Iterator[ConsoleProcess]:
    """Behind OIDC, with Ada as its first admin."""
    port, home = free_port(), tmp_path / "home"
    (home / "console").mkdir(parents=True)
    text = SECRETS.format(
        console=f"http://127.0.0.1:{port}",
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        metadata_url=provider.metadata_url,
    )
    (home / "console" / "secrets.toml").write_text(text)
    (home / "console.yaml").write_text("admins: [ada@example.org]\n")
    with console_process(home, "--no-worker", "--port", str(port)) as process:
        yield process


def test_the_first_admin_signs_in_stays_and_signs_out(
    console: ConsoleProcess, provider: Provider, open_page: Callable[..., Page]
) -> None:
    provider.person = dict(ADMIN)
    page = open_page(console, "/settings?part=People")
    expect(page.get_by_text("for those whom its admins have added")).to_be_visible()
    page.locator(".st-key-sign_in button").click()
    expect(page.get_by_text("1 · Bring data")).to_be_visible()
    page.goto("/settings")
    expect(page.get_by_text("Ada (ada@example.org): admin")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Ada (ada@example.org): admin")).to_be_visible()
    page.locator(".st-key-sign_out button").click()
    expect(page.locator(".st-key-sign_in button")).to_be_visible()


def test_a_stranger_is_told_to_ask_an_admin(
    console: ConsoleProcess, provider: Provider, open_page: Callable[..., Page]
) -> None:
    provider.person = dict(STRANGER)
    page = open_page(console)
    page.locator(".st-key-sign_in button").click()
    expect(page.get_by_text("nobody has added eve@example.org to this console")).to_be_visible()
    expect(page.get_by_text("1 · Bring data")).to_have_count(0)
    with httpx.Client(base_url=console.url) as nobody:
        assert nobody.get("/media/abc.png").status_code == 401
        assert nobody.put("/_stcore/upload_file/x/y", content=b"x").status_code == 401
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    with httpx.Client(base_url=console.url, cookies=cookies) as stranger:
        assert stranger.get("/media/abc.png").status_code == 401
