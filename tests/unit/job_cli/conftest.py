"""A home with a job database of its own, without a worker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from job_commands import Run

from mmrl.cli.app import main
from mmrl.jobs.database import Database

NOOP = "name: probe\nkind: noop\nnoop: {steps: 3}\n"


@pytest.fixture(scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose database is set up, to be copied: migrating takes longer than a test here."""
    home = tmp_path_factory.mktemp("empty") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(home))
        patch.delenv("MMRL_DATABASE_URL", raising=False)
        Database.open().close()
    return home


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty_home: Path) -> Path:
    shutil.copytree(empty_home, tmp_path / "home")
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    path = tmp_path / "noop.yaml"
    path.write_text(NOOP)
    return path


@pytest.fixture
def mmrl(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run
