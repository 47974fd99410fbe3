"""What a config with mistakes is answered: every mistake, where it is, what is allowed, and what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import write_config

from mmrl.config import load_config
from mmrl.config.schema import known_keys
from mmrl.config.suggestions import _NOTES, _PEERS_WORDS
from mmrl.errors import ConfigError


def fault(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(write_config(folder, text))
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("learning_rate: 1e-5\n", "unknown key 'learning_rate'; did you mean 'optim.lr'?"),
        ("num-epochs: 3\n", "unknown key 'num-epochs'; did you mean 'train.steps'? (the length of a run is counted"),
        ("batch_size: 3\n", "did you mean 'rollout.prompts_per_step'? ('sft.batch_size' for kind sft)"),
        ("max_tokens: 3\n", "did you mean 'rollout.max_response_tokens'?"),
        ("sed: 3\n", "did you mean 'seed'?"),
        ("optim: {learning_rate: 1}\n", "unknown key 'optim.learning_rate'; did you mean 'optim.lr'?"),
        ("train: {lr: 1}\n", "did you mean 'optim.lr' or 'critic.optim.lr'?"),
        ("temperature: 1\n", "did you mean 'rollout.temperature' or 'eval.temperature'"),
        ("optm: {lr: 1}\n", "did you mean 'optim'?"),
        ("algorithm: {kl: {cof: 1}}\n", "unknown key 'algorithm.kl.cof'; did you mean 'algorithm.kl.coef'?"),
        ("zzz: 1\n", "unknown key 'zzz'; known here: name, kind, seed, model,"),
        ("canary: {zzz: 1}\n", "known here: max_kl, gap, max_share, max_gap_float32"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(tmp_path: Path, text: str, suggestion: str) -> None:
    """L02."""
    message = fault(tmp_path, text)
    assert suggestion in message
    assert message.startswith(f"{tmp_path / 'run.yaml'}:5: ")


def test_every_word_of_the_peers_leads_to_a_key_that_exists() -> None:
    assert set(_PEERS_WORDS.values()) <= set(known_keys())
    assert set(_NOTES) <= set(_PEERS_WORDS)
    assert not set(_PEERS_WORDS) & set(load_config_top_level())


def load_config_top_level() -> list[str]:
    return [key for key in known_keys() if "." not in key]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim: {lr: fast}\n", "optim.lr: got 'fast'; must be a number, such as 0.5 or 1e-6"),
        ("optim: {lr: -1}\n", "optim.lr: got -1; must be > 0"),
        ("optim: {min_lr_ratio: 2}\n", "optim.min_lr_ratio: got 2; must be <= 1"),
        ("seed: -1\n", "seed: got -1; must be >= 0"),
        ("seed: 1.5\n", "seed: got 1.5; must be a whole number"),
        ("eval: {at_start: maybe}\n", "eval.at_start: got 'maybe'; must be true or false"),
        ("kind: sftt\n", "kind: got 'sftt'; allowed: rl, sft, "),
        ("track: wandb\n", "track: got 'wandb'; must be a list, such as [a, b]"),
        ("track: [wandbb]\n", "track.0: got 'wandbb'; allowed: tensorboard, wandb, mlflow; did you mean 'wandb'?"),
        ("eval: 3\n", "eval: got 3; must be a map of keys"),
        ("optim: {betas: [0.9]}\n", "optim.betas.1: is missing; the list optim.betas is too short"),
        ("optim: {betas: [0.9, 0.9, 0.9]}\n", "optim.betas: got [0.9, 0.9, 0.9]; must have at most 2 items"),
        ("algorithm: {type: gr-po}\n", "algorithm.type: got 'gr-po'; allowed: "),
        ("algorithm: {group_size: 1}\n", "algorithm.group_size: algorithm 'grpo' needs group_size >= 2 (got 1)"),
        ("train: {mini_batches: 3}\n", "train.mini_batches: 3 does not divide rollout.prompts_per_step 128"),
        ("stages: [{after: reward, path: f.py}]\n", "stages.0.name: is missing and has no default (The class.)"),
    ],
)
def test_a_wrong_value_is_told_with_line_value_and_what_is_allowed(tmp_path: Path, text: str, message: str) -> None:
    assert fault(tmp_path, text).startswith(f"{tmp_path / 'run.yaml'}:5: {message}")


def test_rewards_need_a_known_type(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with pytest.raises(ConfigError, match=r"reward\.0\.type: got 'exakt'; allowed: .*did you mean 'exact'\?"):
        load_config(path, ["reward=[{type: exakt}]"])
    with pytest.raises(ConfigError, match=r"reward\.0: needs a `type`; allowed: exact, choice"):
        load_config(path, ["reward=[{weight: 1}]"])
    with pytest.raises(ConfigError, match=r"reward\.0: got 'exact'; must be a map of keys"):
        load_config(path, ["reward=[exact]"])


def test_a_missing_key_says_what_it_is_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write_config(tmp_path, base="name: a\nmodel: {dtype: float32}\n"))
    assert "run.yaml:2: model.path: is missing and has no default (Folder or hub name" in str(error.value)
    assert "data: is missing and has no default" in str(error.value)


def test_all_mistakes_are_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    lines = fault(tmp_path, "sed: 1\noptim:\n  lr: fast\n  epss: 1\nkind: xl\n").split("\n")
    path = tmp_path / "run.yaml"
    assert lines[0] == f"{path}: 4 settings are wrong"
    assert sorted(line.split(": ")[0].strip() for line in lines[1:]) == [f"{path}:{n}" for n in (5, 7, 8, 9)]


def test_a_long_value_is_cut_in_a_message(tmp_path: Path) -> None:
    assert len(fault(tmp_path, f"seed: {'x' * 5000}\n")) < 300


@pytest.mark.parametrize(("type_", "key", "known"), [("dpo", "gamma", "beta"), ("orpo", "beta", "odds_weight")])
def test_a_setting_of_another_loss_is_no_suggestion_for_itself(
    tmp_path: Path, type_: str, key: str, known: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        f"kind: preference\nmodel: {{path: m}}\ndata: {{train: d}}\npreference: {{type: {type_}, {key}: 1}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert f"unknown key 'preference.{key}'; it is no setting of this type; known here: " in str(caught.value)
    assert known in str(caught.value)
