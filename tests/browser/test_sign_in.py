"""Signing in, in a real browser and past it: nothing of the console is told to whoever has not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from looking import THEMES, faults, settle
from playwright.sync_api import Page, expect

from mmrl.jobs.database import Database
from mmrl.jobs.users import Users

PASSWORD = "correct horse battery"
WITH_PASSWORD = {"MMRL_CONSOLE_PASSWORD": PASSWORD}


def mmrl_console(home: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("MMRL_")}
    return subprocess.run(
        [sys.executable, "-m", "mmrl", "console", *words],
        env=own | {"MMRL_HOME": str(home)},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def sign_in(page: Page, secret: str) -> None:
    page.get_by_label("Password or access token").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def media_of(url: str) -> list[str]:
    return [url] if urlsplit(url).path.startswith("/media/") else []


def test_an_address_that_others_reach_is_refused_without_a_sign_in(tmp_path: Path) -> None:
    refused = mmrl_console(tmp_path / "home", "--address", "0.0.0.0", "--no-worker")
    assert refused.returncode == 2
    assert "nothing makes them sign in" in refused.stderr
    short = mmrl_console(tmp_path / "home", "--set-password", text="short\n")
    assert short.returncode == 2
    assert "at least 10" in short.stderr
    assert mmrl_console(tmp_path / "home", "--set-password", text=f"{PASSWORD}\n").returncode == 0
    file = tmp_path / "home" / "console" / "password"
    assert PASSWORD not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


def test_whoever_signs_in_comes_to_the_page_they_asked_for_and_stays_until_they_sign_out(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, _ = start_console("small", environment=WITH_PASSWORD)
    page = open_page(console, "/runs?state=failed", settles=False)
    expect(page).to_have_url(re.compile(r"/sign-in\?goes_to="))
    sign_in(page, "wrong password")
    expect(page.get_by_role("alert")).to_contain_text("not the password")
    sign_in(page, PASSWORD)
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    assert page.url.endswith("/runs?state=failed")
    page.reload()
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    page.goto("/settings")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You have signed out")).to_be_visible()
    page.goto("/")
    expect(page.get_by_label("Password or access token")).to_be_visible()


def test_a_token_signs_in_as_whom_it_speaks_for_and_no_longer_once_revoked(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, home = start_console("small", environment=WITH_PASSWORD)
    with home.active(), Database.open() as database:
        users = Users(database)
        text, token = users.create_token(home.users["viewer"], "browser", scopes=["read"])
    page = open_page(console, "/cluster", settles=False)
    sign_in(page, text)
    expect(page.get_by_role("heading", name="Cluster", exact=True)).to_be_visible()
    expect(page.get_by_text("CPU slots in use").first).to_be_visible()
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    with home.active(), Database.open() as database:
        Users(database).revoke_token(token.id)
    page.reload()
    expect(page.get_by_text("is not valid any more")).to_be_visible()


def test_nothing_is_told_without_a_sign_in(start_console: Callable[..., Any]) -> None:
    console, _ = start_console("empty", environment=WITH_PASSWORD)
    with httpx.Client(base_url=console.url) as client:
        assert client.get("/_stcore/health").text == "ok"
        for path in ("/", "/runs", "/media/0.png", "/_stcore/host-config", "/static/js/index.js", "/_stcore/metrics"):
            answer = client.get(path)
            assert answer.status_code in (303, 401), path
            assert "mmrl</title>" not in answer.text
        assert client.put("/_stcore/upload_file/x/y", content=b"x").status_code == 401
        forged = client.get("/", headers={"Cookie": "mmrl_session=eyJpZCI6IjEifQ.aaaa.bbbb"})
        assert forged.status_code == 401
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        socket = client.get("/_stcore/stream", headers=upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
        assert socket.status_code == 403


def test_other_names_of_the_server_and_other_origins_are_refused(start_console: Callable[..., Any]) -> None:
    console, _ = start_console("empty", environment=WITH_PASSWORD)
    with httpx.Client(base_url=console.url) as client:
        assert client.get("/sign-in", headers={"Host": "attacker.example"}).status_code == 400
        form = {"secret": PASSWORD, "goes_to": "https://attacker.example/"}
        assert client.post("/sign-in", data=form, headers={"Origin": "http://attacker.example"}).status_code == 403
        done = client.post("/sign-in", data=form)
        assert (done.status_code, done.headers["location"]) == (303, "/")
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert client.get("/").status_code == 200
        assert client.get("/").headers["X-Frame-Options"] == "SAMEORIGIN"


def test_tries_are_limited_also_for_the_right_password(start_console: Callable[..., Any]) -> None:
    console, _ = start_console("empty", environment=WITH_PASSWORD)
    with httpx.Client(base_url=console.url) as client:
        codes = [client.post("/sign-in", data={"secret": f"guess {number}"}).status_code for number in range(6)]
        assert codes == [403] * 5 + [429]
        assert client.post("/sign-in", data={"secret": PASSWORD}).status_code == 429


def test_an_image_is_told_only_to_those_who_signed_in(
    start_console: Callable[..., Any], open_page: Callable[..., Page]
) -> None:
    console, home = start_console("small", environment=WITH_PASSWORD)
    page = open_page(console, f"/dataset?name={home.datasets[0]}", settles=False)
    seen: list[str] = []
    page.on("response", lambda answer: seen.extend(media_of(answer.url)))
    sign_in(page, PASSWORD)
    expect(page.get_by_role("heading").first).to_be_visible()
    settle(page)
    assert seen, "the page of a data set shows no image"
    with httpx.Client() as stranger:
        assert stranger.get(seen[0]).status_code == 401
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    with httpx.Client(cookies=cookies) as friend:
        answer = friend.get(seen[0])
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "private, no-store"


def test_the_page_to_sign_in_is_accessible(start_console: Callable[..., Any], open_page: Callable[..., Page]) -> None:
    console, _ = start_console("empty", environment=WITH_PASSWORD)
    page = open_page(console, "/", settles=False)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        assert not faults(page)
