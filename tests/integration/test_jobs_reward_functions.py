"""Reward functions that people bring, in the job database, on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmrl.errors import ConfigError, NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import User
from mmrl.jobs.reward_functions import RewardFunctions, Setting, inspect_source
from mmrl.jobs.users import Users

SOURCE = '''
raise SystemExit("this is never run")

def score(response, answer=None, *, short=50, words: tuple = ("a",), key):
    """Pays short ones."""
    return 1.0

def helper(x):
    return x
'''


@pytest.fixture
def functions(job_database: Database, tmp_path: Path) -> RewardFunctions:
    return RewardFunctions(job_database, Users(job_database).local(), root=tmp_path)


def test_a_function_is_kept_as_versions_and_read_without_being_run(functions: RewardFunctions) -> None:
    first = functions.add("brief", SOURCE)
    assert (first.function, first.about, first.takes) == ("score", "Pays short ones.", ("response", "answer"))
    assert first.settings == (Setting("short", "50"), Setting("words", "('a',)"), Setting("key", None))
    assert first.source() == SOURCE
    assert functions.add("brief", SOURCE).id == first.id, "the same is no other version"
    second = functions.add("brief", SOURCE.replace("1.0", "2.0"))
    assert [each.version for each in functions.all()] == [second.version, first.version]
    assert functions.get("brief").id == second.id
    assert functions.get("brief", first.version).source() == SOURCE
    with pytest.raises(NotFoundError, match="no reward 'brief' of version x"):
        functions.get("brief", "x")


def test_a_file_that_was_changed_or_is_gone_is_told(functions: RewardFunctions) -> None:
    found = functions.add("brief", SOURCE)
    found.path.write_text("other")
    with pytest.raises(ConfigError, match="was changed"):
        found.source()
    found.path.unlink()
    with pytest.raises(NotFoundError, match="is gone"):
        found.source()


def test_only_who_may_run_code_brings_any(job_database: Database, tmp_path: Path) -> None:
    member: User = Users(job_database).add("Mia", role="member")
    with pytest.raises(ForbiddenError):
        RewardFunctions(job_database, member, root=tmp_path / "rewards").add("brief", SOURCE)
    assert not (tmp_path / "rewards").exists()


@pytest.mark.parametrize(
    ("source", "function", "told"),
    [
        ("def score(response)", None, "no Python: line 1"),
        ("x = 1", None, "no function; it has: none"),
        ("def a(response): ...\ndef b(response): ...", None, "several functions"),
        ("def a(response): ...", "c", "no function 'c'; it has: a"),
        ("def a(x): ...", None, "takes none of response"),
        ("def a(response):\n x = '\x00'", None, "no Python"),
    ],
)
def test_what_is_no_reward_is_refused(source: str, function: str | None, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        inspect_source(source, function)


@pytest.mark.parametrize("name", ["", "../up", "a b", ".hidden"])
def test_a_name_is_never_a_path(functions: RewardFunctions, name: str) -> None:
    with pytest.raises(ConfigError, match="name of a reward"):
        functions.add(name, SOURCE)
