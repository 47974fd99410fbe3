"""Who gets in: passwords, sign-ins, tries, and the settings that decide it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from console import passwords, sessions
from console.access import Access, access_at, check_access, oidc_provider
from console.options import allowed_hosts, server_options
from console.sessions import SignInNeededError, Tries, of_cookie, sign_in, to_cookie, user_of
from console.settings import ConsoleSettings, load_settings
from mmrl.errors import ConfigError, ConflictError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.users import Users

PASSWORD = "correct horse battery"
OIDC = """
[auth]
redirect_uri = "https://mmrl.example/oauth2callback"
cookie_secret = "fake-cookie-secret"
[auth.company]
client_id = "id"
client_secret = "fake-client-secret"
server_metadata_url = "https://id.example/.well-known/openid-configuration"
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    return tmp_path


def write_oidc(home: Path, text: str = OIDC) -> None:
    (home / "console").mkdir(exist_ok=True)
    (home / "console" / "secrets.toml").write_text(text)


def test_the_address_decides_whether_people_must_sign_in(home: Path) -> None:
    assert access_at("127.0.0.1") is access_at("::1") is access_at("localhost") is Access.OPEN
    assert (
        access_at("0.0.0.0") is access_at(None) is access_at("mmrl.example") is access_at("192.0.2.1") is Access.CLOSED
    )
    passwords.save_password(PASSWORD)
    assert access_at("127.0.0.1") is access_at("0.0.0.0") is Access.PASSWORD
    write_oidc(home)
    assert access_at("0.0.0.0") is Access.OIDC
    assert oidc_provider() == "company"


def test_a_password_is_kept_as_a_hash_that_others_cannot_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passwords.load_password() is None
    file = passwords.save_password(PASSWORD)
    assert PASSWORD not in file.read_text()
    for path in (file, home / "console" / "key"):
        passwords.load_key()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = passwords.load_password()
    assert found is not None
    assert found.matches(PASSWORD)
    assert not found.matches(PASSWORD + " ")
    monkeypatch.setenv(passwords.PASSWORD_VARIABLE, "another password")
    other = passwords.load_password()
    assert other is not None
    assert other.matches("another password")
    assert other.stamp == passwords.load_password().stamp != found.stamp  # type: ignore[union-attr]


def test_damaged_and_short_secrets_are_refused_without_being_told(home: Path) -> None:
    with pytest.raises(ConfigError, match="at least 10"):
        passwords.save_password("short")
    passwords.save_password(PASSWORD).write_text("scrypt:broken")
    with pytest.raises(ConfigError, match="--set-password"):
        access_at("127.0.0.1")
    (home / "console" / "key").write_text("12")
    with pytest.raises(ConflictError, match="is damaged"):
        passwords.load_key()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OIDC.replace("client_secret", "secret"), "lacks auth.client_secret"),
        (OIDC.replace("cookie_secret", "secret"), "lacks auth.cookie_secret"),
        ("[other]\n", "no section"),
        ("[auth", "as TOML"),
    ],
)
def test_oidc_that_is_not_whole_is_refused_without_its_values(home: Path, text: str, words: str) -> None:
    write_oidc(home, text)
    with pytest.raises(ConfigError, match=words) as refused:
        access_at("127.0.0.1")
    assert "fake-" not in str(refused.value)


def test_oidc_needs_an_admin_before_it_starts(home: Path) -> None:
    write_oidc(home)
    with Database.open() as database:
        users = Users(database)
        with pytest.raises(ConfigError, match="name the first admin"):
            check_access(ConsoleSettings(), "0.0.0.0", users)
        assert check_access(ConsoleSettings(admins=("a@b.example",)), "0.0.0.0", users) is Access.OIDC
        users.add("Ada", role="admin", email="ada@example.org")
        assert check_access(ConsoleSettings(), "0.0.0.0", users) is Access.OIDC


def test_a_sign_in_holds_until_the_password_changes_it_ends_or_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    passwords.save_password(PASSWORD)
    with Database.open() as database:
        users = Users(database)
        with pytest.raises(ForbiddenError):
            sign_in(users, "wrong password")
        cookie = to_cookie(sign_in(users, PASSWORD))
        assert user_of(users, of_cookie(cookie)).role == "admin"
        for forged in (None, "", "x.y.z", cookie[:-2] + "zz"):
            with pytest.raises(SignInNeededError):
                of_cookie(forged)
        ended = sign_in(users, PASSWORD)
        sessions.ENDED.add(ended)
        monkeypatch.setattr(sessions, "ENDED", sessions.Ended())  # as after a restart
        with pytest.raises(SignInNeededError, match="signed out"):
            of_cookie(to_cookie(ended))
        passwords.save_password("another password")
        with pytest.raises(SignInNeededError, match="password has changed"):
            user_of(users, of_cookie(cookie))
        monkeypatch.setattr("itsdangerous.TimestampSigner.get_timestamp", lambda self: 2_000_000_000)
        with pytest.raises(SignInNeededError, match="has ended"):
            of_cookie(cookie)


def test_tries_are_limited_for_each_client_and_for_all_together() -> None:
    tries = Tries(most=2, most_in_all=4, window_s=100.0)
    for at, client in ((0.0, "a"), (10.0, "a"), (20.0, "b")):
        tries.note(client, now=at)
    assert tries.wait_s("a", now=30.0) == 70.0
    assert tries.wait_s("b", now=30.0) == 0.0
    tries.note("c", now=40.0)
    assert tries.wait_s("d", now=40.0) == 60.0
    assert tries.wait_s("a", now=101.0) == 0.0


def test_settings_come_from_the_file_and_over_it_from_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "console.yaml").write_text("max_upload_mb: 50\nadmins: [a@b.example]\n")
    monkeypatch.setenv("MMRL_CONSOLE_ALLOWED_HOSTS", "mmrl.example, other.example")
    found = load_settings()
    assert (found.max_upload_mb, found.admins) == (50, ("a@b.example",))
    assert found.allowed_hosts == ("mmrl.example", "other.example")
    (home / "console.yaml").write_text("max_upload: 50\n")
    with pytest.raises(ConfigError, match="max_upload"):
        load_settings()


def test_the_server_is_told_to_be_careful() -> None:
    options = server_options(ConsoleSettings(max_upload_mb=7), address="127.0.0.1", port=8501)
    expected = {
        "server.address": "127.0.0.1",
        "server.enableCORS": True,
        "server.enableXsrfProtection": True,
        "server.enableStaticServing": False,
        "server.maxUploadSize": 7,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "viewer",
        "browser.gatherUsageStats": False,
    }
    assert expected.items() <= options.items()
    assert allowed_hosts("127.0.0.1", ConsoleSettings()) == ["localhost", "127.0.0.1", "::1"]
    assert "mmrl.example" in allowed_hosts("0.0.0.0", ConsoleSettings(allowed_hosts=("MMRL.example",)))
