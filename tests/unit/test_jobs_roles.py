"""Who may do what, and what in a config is code or a secret."""

from __future__ import annotations

import py_compile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mmrl.config.reward_http import RemoteRewardConfig
from mmrl.config.secrets import is_reference, read_reference, redact, secret_values
from mmrl.errors import ConfigError
from mmrl.jobs.config_checks import code_keys, config_hash, refuse_literal_secrets
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import Role, User
from mmrl.jobs.roles import ACTIONS, check_allowed, check_scopes, is_allowed
from mmrl.jobs.settings import JobsSettings
from mmrl.rewards.model.http_client import read_key
from mmrl.user_code import load_function

SETTINGS = JobsSettings()


def person(role: Role, *, is_disabled: bool = False, scopes: frozenset[str] | None = None) -> User:
    return User("u1", "ann", None, role, datetime(2026, 1, 1, tzinfo=UTC), is_disabled, scopes)


def test_each_role_may_do_what_the_one_below_may_and_more() -> None:
    may = {
        role: {action for action in ACTIONS if is_allowed(person(role), action, settings=SETTINGS, owner_id="u1")}
        for role in ("viewer", "member", "admin")
    }
    assert may["viewer"] == {"read"}
    assert may["member"] == {"read", "label", "submit", "control", "data"}
    assert may["admin"] == set(ACTIONS)


def test_members_control_their_own_jobs_unless_they_may_control_all() -> None:
    member = person("member")
    assert not is_allowed(member, "control", settings=SETTINGS, owner_id="u2")
    assert is_allowed(member, "control", settings=JobsSettings(members_control_all=True), owner_id="u2")
    assert not is_allowed(person("viewer"), "control", settings=JobsSettings(members_control_all=True), owner_id="u2")
    assert is_allowed(person("admin"), "control", settings=SETTINGS, owner_id="u2")


def test_code_is_for_admins_unless_members_may_run_it() -> None:
    assert not is_allowed(person("member"), "code", settings=SETTINGS)
    assert is_allowed(person("member"), "code", settings=JobsSettings(members_may_run_code=True))
    assert not is_allowed(person("viewer"), "code", settings=JobsSettings(members_may_run_code=True))


def test_a_token_may_do_no_more_than_its_scopes_nor_than_its_user() -> None:
    reader = person("admin", scopes=frozenset({"read"}))
    assert is_allowed(reader, "read", settings=SETTINGS)
    with pytest.raises(ForbiddenError, match="ann may not submit jobs: the token's scopes are read; use one with"):
        check_allowed(reader, "submit", settings=SETTINGS)
    assert not is_allowed(person("viewer", scopes=frozenset({"submit"})), "submit", settings=SETTINGS)


def test_a_disabled_account_may_do_nothing() -> None:
    with pytest.raises(ForbiddenError, match="the account is disabled"):
        check_allowed(person("admin", is_disabled=True), "read", settings=SETTINGS)


def test_scopes_are_actions() -> None:
    assert check_scopes(["read", "read"]) == {"read"}
    for wrong in (["rea"], []):
        with pytest.raises(ConfigError, match="choose among read, label"):
            check_scopes(wrong)


def test_code_in_a_config_is_found_wherever_it_stands() -> None:
    config = {
        "model": {"path": "Qwen/Qwen2.5-VL-3B-Instruct", "trust_remote_code": True},
        "reward": [{"type": "math"}, {"type": "function", "path": "mine", "name": "score"}],
        "stages": [{"after": "reward", "path": "my.module", "name": "Filter"}],
        "algorithm": {"advantage": {"path": "/x/adv.py"}},
        "data": {"train": "set.jsonl"},
    }
    assert code_keys(config) == [
        "model.trust_remote_code",
        "reward.1.type",
        "stages.0.path",
        "algorithm.advantage.path",
    ]
    assert code_keys({"model": {"trust_remote_code": False}, "reward": [{"type": "math"}]}) == []


def test_a_secret_and_a_server_that_a_config_names_take_the_same_right_as_code() -> None:
    rewards = [
        {"type": "judge", "model": "m"},
        {"type": "min", "rewards": [{"type": "math"}, {"type": "remote", "url": "http://169.254.169.254/"}]},
    ]
    assert code_keys({"reward": rewards}) == ["reward.0.type", "reward.1.rewards.1.type", "reward.1.rewards.1.url"]
    assert code_keys({"a": {"b": "file:~/.ssh/id_rsa", "c": ["env:HOME"], "d": "a file:/x"}}) == ["a.b", "a.c.0"]


def test_every_reward_that_asks_a_server_is_known_as_such() -> None:
    """A new one must be found by `code_keys`, also where its address is a default."""
    from mmrl.config.reward_http import HttpRewardConfig

    kinds = {each.model_fields["type"].default for each in HttpRewardConfig.__subclasses__()}
    assert {"judge", "remote"} <= kinds
    for kind in kinds:
        assert code_keys({"reward": [{"type": kind}]}) == ["reward.0.type"]


@pytest.mark.parametrize("path", ["my.package.module", "adv", "/tmp/adv.so", "folder/adv.pyc", "adv.py", ""])
def test_whatever_advantages_and_stages_are_loaded_from_is_code(path: str) -> None:
    config = {"algorithm": {"type": "grpo", "advantage": {"path": path, "name": "f"}}, "stages": [{"path": path}]}
    assert code_keys(config) == ["algorithm.advantage.path", "stages.0.path"]
    assert code_keys({"algorithm": {"advantage": {"type": "rloo", "path": None}}}) == []


@pytest.mark.parametrize("name", ["adv.so", "adv.pyc", "adv"])
def test_a_file_that_is_no_source_is_never_loaded(name: str, tmp_path: Path) -> None:
    """Python has loaders for libraries and compiled files too, which nobody can read beforehand."""
    (tmp_path / "adv.py").write_text("def advantages(): ...\n")
    file = py_compile.compile(str(tmp_path / "adv.py"), cfile=str(tmp_path / name), doraise=True)
    assert file is not None
    with pytest.raises(ConfigError, match=r"is not a Python file; its name must end in \.py"):
        load_function(file, "advantages", what="advantage", purpose="to give advantages")


def test_every_setting_of_a_run_that_takes_code_is_known_as_such() -> None:
    """A new kind of user code that is loaded from a path must be found by `code_keys`."""
    from mmrl.config.schema import known_keys

    paths = {key for key in known_keys() if key.endswith(".path")}
    assert paths
    for key in paths - {"model.path"}:
        config: dict = {}
        node = config
        *groups, last = key.split(".")
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = "mine.py"
        assert code_keys(config) == [key]


def test_x08_secrets_stand_in_a_config_as_references_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text("from-a-file\n")
    monkeypatch.setenv("SOME_KEY", "from-the-environment")
    config = {"a": {"api_key": f"file:{file}"}, "b": {"token": "env:SOME_KEY"}, "max_tokens": 5, "token": None}
    refuse_literal_secrets(config)
    assert redact(config) == config
    assert secret_values(config) == {"from-a-file", "from-the-environment"}
    with pytest.raises(ConfigError, match=r"^a\.api_key, b\.0\.token: a secret may not stand"):
        refuse_literal_secrets({"a": {"api_key": "<redacted>"}, "b": [{"token": "literal"}]})


def test_references_are_told_from_secrets(tmp_path: Path) -> None:
    assert is_reference("env:NAME")
    assert is_reference("file:/run/secrets/key")
    assert is_reference("file:~/key")
    for text in ("file:relative", "env:", "file:", "environment:X", "a file:/x", None, 3):
        assert not is_reference(text)
    assert read_reference(f"file:{tmp_path}/none") == ""


def test_a_file_of_mmrls_home_is_never_read_as_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "console").mkdir(parents=True)
    (home / "console" / "key").write_text("signs cookies")
    (tmp_path / "own").write_text("my own")
    (tmp_path / "link").symlink_to(home / "console" / "key")
    (tmp_path / "also-home").symlink_to(home)
    for folder in (home, tmp_path / "also-home"):
        monkeypatch.setenv("MMRL_HOME", str(folder))
        for path in (home / "console" / "key", home / ".." / "home" / "console" / "key", tmp_path / "link"):
            assert read_reference(f"file:{path}") == "", path
        assert read_reference(f"file:{tmp_path}/own") == "my own"
    with pytest.raises(ConfigError, match="lies in mmrl's home, from where no key is sent"):
        read_key(RemoteRewardConfig(url="http://127.0.0.1:9", api_key=f"file:{tmp_path}/link"))


def test_hashes_of_configs_are_stable() -> None:
    assert config_hash({"b": 1, "a": [True, None, "é"]}) == config_hash({"a": [True, None, "é"], "b": 1})
    assert config_hash({"a": 1}) != config_hash({"a": 1.5})
