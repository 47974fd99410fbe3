"""Configs that an earlier version stored: each is read, and diffed, though a person could not write it today.

`recorded/stored_configs.json` is what the version before `outcome_gate: null` dumped: a whole run, the algorithm of a
run of each type (and of some with settings that nothing reads now), and what runs of other kinds have instead.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from mmrl.config.actor import FsdpConfig
from mmrl.config.comparing import diff_configs
from mmrl.config.dump import plain_config, yaml_text
from mmrl.config.loading import build_config, load_config
from mmrl.config.run import RunConfig
from mmrl.errors import ConfigError
from mmrl.runs.config_file import identity_conflict
from mmrl.runs.layout import is_stored_config

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "recorded" / "stored_configs.json").read_text())
OTHER_CLASSES = {"noop", "evaluate", "mark", "export"}


def _algorithm(name: str) -> dict[str, Any]:
    train = {**STORED["run"]["train"], "steps": 100}
    return {**STORED["run"], "train": train, "algorithm": STORED["algorithms"][name]}


def _other(name: str) -> dict[str, Any]:
    own: dict[str, Any] = STORED["others"][name]
    return own if name in OTHER_CLASSES else {**STORED["run"], **own}


DUMPS = {name: _algorithm(name) for name in STORED["algorithms"]} | {name: _other(name) for name in STORED["others"]}


@pytest.mark.parametrize("name", DUMPS)
def test_what_was_stored_is_read_as_the_same_run_and_reads_back_strictly(name: str, tmp_path: Path) -> None:
    text = yaml_text(DUMPS[name])
    (tmp_path / "config.yaml").write_text(text)
    loaded = load_config(tmp_path)
    again = build_config(plain_config(loaded.config))
    assert again.config == loaded.config
    assert diff_configs(loaded, again) == []
    assert identity_conflict(text, yaml_text(plain_config(loaded.config))) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("ppo", "outcome_gate: shaping acts where"),
        ("vapo policy_lam", "outcome_gate: shaping acts where"),
        ("unread by the chosen", "overlong_penalty is of the advantages"),
        ("unread by a function", "eta is of the advantages"),
        ("argument of the run's own", "critic_lam is read by no advantages"),
        ("gate of another's", "outcome_gate: shaping acts where"),
        ("preference", "algorithm 'grpo' would not be used"),
        ("reward_model", "algorithm 'grpo' would not be used"),
    ],
)
def test_a_person_is_still_refused(name: str, fault: str, tmp_path: Path) -> None:
    if name in {"preference", "reward_model"}:
        data = {**DUMPS[name], "algorithm": {**DUMPS[name]["algorithm"], "outcome_gate": "off"}}
    else:
        data = DUMPS[name]
    file = tmp_path / "mine.yaml"
    file.write_text(yaml_text(data))
    with pytest.raises(ConfigError, match=fault):
        load_config(file)


def test_what_is_left_out_is_told_and_what_is_read_stays(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = build_config(DUMPS["argument of the run's own"], source="old", is_stored=True).run_config
    assert config.algorithm.advantage.arguments == {}
    assert config.algorithm.outcome_gate is None
    told = [record.getMessage() for record in caplog.records]
    assert "old: algorithm.outcome_gate 'shaping', stored by an earlier version, is left out: nothing reads it" in told
    assert any("algorithm.advantage.arguments.policy_lam 0.9" in line for line in told)
    masked = build_config(DUMPS["dapo masked"], is_stored=True).run_config
    assert (masked.algorithm.mask_truncated, masked.algorithm.outcome_gate) == (True, "shaping")


def test_a_changed_default_of_rl_refuses_no_stored_run_of_another_kind(caplog: pytest.LogCaptureFixture) -> None:
    data = {**DUMPS["preference"], "reward_model": {**STORED["run"]["reward_model"], "batch_size": 5}}
    data["algorithm"] = {**data["algorithm"], "clip_low": 0.1}
    config = build_config(data, is_stored=True).run_config
    assert config == build_config(DUMPS["preference"], is_stored=True).run_config
    with pytest.raises(ConfigError, match="these settings are for kind 'reward_model'"):
        build_config(data)


@pytest.mark.parametrize("share", [4, 0.5])
def test_gpus_that_were_shared_or_idle_are_read_as_one_for_each_worker(
    share: float, caplog: pytest.LogCaptureFixture
) -> None:
    pools = {"main": {"workers": 2, "gpus_per_worker": share}}
    config = build_config(
        {**STORED["run"], "placement": {"executor": "ray", "pools": pools}}, source="old", is_stored=True
    ).run_config
    assert config.placement.pools["main"].gpus_per_worker == 1
    told = f"old: placement.pools.main.gpus_per_worker {share:g}, stored by an earlier version, is read as 1"
    assert caplog.records[-1].getMessage().startswith(told)


def test_sharding_that_a_run_in_one_process_never_did_is_left_out() -> None:
    sharded = {"fsdp": {"offload": True, "shard_size": 2}}
    config = build_config({**STORED["run"], "actor": sharded}, is_stored=True).run_config
    assert config.actor.fsdp == FsdpConfig()
    with pytest.raises(ConfigError, match=r"actor\.fsdp\.\w+: is for models that workers hold"):
        build_config({**STORED["run"], "actor": sharded})


def test_overrides_of_a_stored_config_are_a_persons(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml_text(DUMPS["ppo"]))
    assert load_config(tmp_path, ["algorithm.lam=0.9"]).run_config.algorithm.lam == 0.9  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="outcome_gate: group acts where"):
        load_config(tmp_path, ["algorithm.outcome_gate=group"])
    with pytest.raises(ConfigError, match=r"unknown key 'algorithm\.nothing'"):
        load_config(tmp_path, ["algorithm.nothing=1"])


def test_the_files_that_mmrl_wrote_are_known_by_their_place(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "attempt-1" / "job").mkdir(parents=True)
    for folder in (run, run / "attempt-1", run / "attempt-1" / "job", run / "checkpoints" / "step-000010"):
        assert is_stored_config(folder / "config.yaml"), folder
    for file in (tmp_path / "config.yaml", tmp_path / "job" / "config.yaml", run / "mine.yaml"):
        assert not is_stored_config(file), file


def test_a_run_of_today_is_read_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    new = {"name": "new", "model": {"path": "m"}, "data": {"train": "d"}, "algorithm": {"type": "ppo"}}
    config = RunConfig.model_validate({**new, "train": {"steps": 9}})
    assert build_config(plain_config(config), is_stored=True).config == config
    assert caplog.records == []
