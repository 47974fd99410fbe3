"""Fixtures of the console's tests: the homes, and pages run in them without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from homes import KINDS, Home, build_home
from postgres_server import TEMPLATE

APP = Path(__file__).parents[2] / "console" / "app.py"
_PAGE_S = 30


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Home]:
    """`shared_home(kind)`: a home of one of KINDS, built once a session; not to be written into."""
    built: dict[str, Home] = {}

    def get(kind: str) -> Home:
        if kind not in built:
            built[kind] = build_home(kind, tmp_path_factory.mktemp("homes") / kind)
        return built[kind]

    return get


@pytest.fixture(scope="session")
def postgres_home(postgres_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The small home with its jobs in PostgreSQL; not to be written into."""
    url = postgres_server.create_database(template=TEMPLATE)
    return build_home("small", tmp_path_factory.mktemp("homes") / "postgres", url)


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Home]:
    """`fresh_home(kind)`: a home of the test's own, which is MMRL_HOME from then on."""

    def get(kind: str) -> Home:
        home = build_home(kind, tmp_path / kind)
        enter(home, monkeypatch)
        return home

    return get


@pytest.fixture(params=KINDS)
def any_home(request: pytest.FixtureRequest, shared_home: Callable[[str], Home]) -> Home:
    """Each kind of home in turn; not to be written into."""
    return shared_home(request.param)


@pytest.fixture
def run_page(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`run_page(path, home, **query)`: a page of the console, such as `runs` or `app_pages/runs.py`, run once in a home
    with a query in its address. Gives Streamlit's AppTest, to look at and to go on with."""
    from streamlit.testing.v1 import AppTest

    def run(path: str, home: Home, **query: str) -> AppTest:
        enter(home, monkeypatch)
        test = AppTest.from_file(str(APP), default_timeout=_PAGE_S)
        name = Path(path).stem
        if name != "home":
            test.run()  # Streamlit names its page only after a first run
            test.switch_page(f"app_pages/{name}.py")
        test.query_params.update(query)
        return test.run()

    return run


@pytest.fixture(autouse=True)
def _loopback() -> Iterator[None]:
    """Pages without a server are taken for ones on 127.0.0.1, where nobody signs in."""
    from streamlit import config

    earlier = config.get_option("server.address")
    config.set_option("server.address", "127.0.0.1")
    yield
    config.set_option("server.address", earlier)


def enter(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is MMRL_HOME for the rest of the test."""
    for name, value in home.environment.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
