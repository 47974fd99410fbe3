"""Secrets in a config leave it nowhere: not in dumps, listings, error messages or a repr."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import write_config

from mmrl.config import dump_yaml, load_config, plain_config
from mmrl.config.secrets import REDACTED, is_secret_key, redact, referenced_variable, secret_values
from mmrl.errors import ConfigError

KEY = "fake-key-1234567890"
FUNCTION = f"{{type: function, path: f.py, arguments: {{api_key: {KEY}, judge: {{auth-token: {KEY}, url: here}}}}}}"


@pytest.mark.parametrize(
    "key",
    [
        "api_key",
        "apikey",
        "API-KEY",
        "openaiApiKey",
        "hf_token",
        "token",
        "password",
        "db_password",
        "client_secret",
        "secret_key",
        "AWS_ACCESS_KEY",
        "private_key",
        "credentials",
        "Authorization",
        "secrets",
        "api_keys",
    ],
)
def test_keys_of_secrets_are_known(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    ["max_prompt_tokens", "tokens", "eos_token", "pad_token", "key", "keywords", "keep", "train", "monkey", "author"],
)
def test_other_keys_are_no_secrets(key: str) -> None:
    assert not is_secret_key(key)


def test_every_key_of_a_run_config_is_shown_but_those_that_take_references() -> None:
    from mmrl.config.schema import known_keys

    names = {key.rpartition(".")[2] for key in known_keys()}
    assert {name for name in names if is_secret_key(name)} == {"api_key"}


def test_a_reference_is_shown_and_what_it_stands_for_is_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    reward = "reward=[{type: judge, model: m, api_key: 'env:JUDGE_KEY'}]"
    loaded = load_config(write_config(tmp_path), [reward])
    saved = tmp_path / "saved.yaml"
    saved.write_text(dump_yaml(loaded.config))
    assert load_config(saved).config == loaded.config
    assert "env:JUDGE_KEY" in repr(loaded.config)
    assert secret_values(loaded.config.model_dump()) == {KEY}
    assert referenced_variable(f"env:{KEY} ") is None


def test_a_key_written_into_a_config_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write `env:NAME`") as error:
        load_config(write_config(tmp_path), [f"reward=[{{type: judge, model: m, api_key: {KEY}}}]"])
    assert KEY not in str(error.value)


def test_secrets_reach_the_reward_but_no_output(tmp_path: Path) -> None:
    loaded = load_config(write_config(tmp_path), [f"reward=[{FUNCTION}]"])
    assert loaded.config.reward[0].arguments["api_key"] == KEY  # type: ignore[union-attr]
    outputs = [dump_yaml(loaded.config), str(plain_config(loaded.config)), repr(loaded), str(loaded.config)]
    outputs += [f"{leaf.value} {leaf.origin}" for leaf in loaded.leaves]
    assert KEY not in "\n".join(outputs)
    arguments = plain_config(loaded.config)["reward"][0]["arguments"]
    assert arguments == {"api_key": REDACTED, "judge": {"auth-token": REDACTED, "url": "here"}}


def test_a_dump_without_secrets_can_be_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(load_config(write_config(tmp_path), [f"reward=[{FUNCTION}]"]).config))
    assert load_config(path).config.reward[0].arguments["api_key"] == REDACTED  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "overrides",
    [
        [f"model.api_key={KEY}"],
        ["model.api_key", KEY],
        [f"reward=[{FUNCTION}]", "reward.0.weight=x"],
        [f"reward=[{FUNCTION}]", f"reward.0.arguments.api_key.x={KEY}"],
        [f"optim={{password: {KEY}}}"],
        [f"name={{token: {KEY}}}"],
    ],
)
def test_error_messages_show_no_secret(tmp_path: Path, overrides: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write_config(tmp_path), overrides)
    assert KEY not in str(error.value)


def test_secrets_are_known_by_their_form_too() -> None:
    texts = ["https://user:pass@host/x", "sk-abcdefghijklmnop1234", "hf_abcdefghijklmnopqrst", "Bearer abc.def.ghi"]
    assert redact(texts) == [f"https://{REDACTED}@host/x", REDACTED, REDACTED, f"Bearer {REDACTED}"]
    assert redact("s3://bucket/a:b") == "s3://bucket/a:b"


def test_nothing_but_secrets_is_changed() -> None:
    data = {"a": [1, 2.5, None, True, {"token": None, "password": ""}], "b": ("x",)}
    assert redact(data) == data


@pytest.mark.parametrize(
    ("name", "value"), [("MY_TOKEN", "abc"), ("MMRL_DATABASE_URL", "postgresql://ann:pw-12345@host/mmrl")]
)
@pytest.mark.parametrize("form", ["${%s}/data", "/data/$%s"])
def test_a_path_tells_no_secret_of_the_environment(
    name: str, value: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path is shown in errors and stored in configs."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"the environment variable {name} in .* holds a secret") as caught:
        load_config(write_config(tmp_path), [f"model.path={form % name}"])
    assert value not in str(caught.value)
