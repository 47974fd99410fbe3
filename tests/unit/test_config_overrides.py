"""`key=value` overrides: typed like the file, into groups, lists and members of unions."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import write_config

from mmrl.config import RunConfig, load_config
from mmrl.config.algorithm import GrpoConfig, KlConfig
from mmrl.config.nodes import DEFAULT, MapNode, Origin, plain
from mmrl.config.overrides import apply_override, read_override
from mmrl.errors import ConfigError


def load(folder: Path, *overrides: str) -> RunConfig:
    return load_config(write_config(folder), overrides).config


def test_a_list_is_written_as_in_yaml(tmp_path: Path) -> None:
    assert load(tmp_path, "model.freeze=[vision, projector]").model.freeze == ("vision", "projector")


def test_an_item_of_a_list_is_set_by_its_index(tmp_path: Path) -> None:
    assert load(tmp_path, "reward.0.weight=2").reward[0].weight == 2.0
    assert load(tmp_path, "reward[0].weight=2").reward[0].weight == 2.0


def test_an_item_of_a_default_list_is_set_and_the_others_stay(tmp_path: Path) -> None:
    loaded = load_config(write_config(tmp_path), ["optim.betas.1=0.95"])
    assert loaded.config.optim.betas == (0.9, 0.95)
    assert loaded.origin_of("optim.betas") == Origin("override", "optim.betas.1=0.95")


def test_a_key_of_a_union_member_is_set_whether_or_not_the_file_names_the_member(tmp_path: Path) -> None:
    assert load(tmp_path, "algorithm.clip_high=0.28").algorithm.clip_high == 0.28
    changed = load(tmp_path, "algorithm.type=dr_grpo", "algorithm.group_size=2").algorithm
    assert (changed.type, changed.group_size, changed.loss_aggregation) == ("dr_grpo", 2, "constant")


def test_a_group_that_the_file_sets_to_null_can_be_filled(tmp_path: Path) -> None:
    path = write_config(tmp_path, "optim: null\n")
    assert load_config(path, ["optim.lr=1e-4"]).config.optim.lr == 1e-4


def test_the_last_override_of_a_key_wins(tmp_path: Path) -> None:
    assert load(tmp_path, "seed=1", "seed=2").seed == 2


def test_nothing_after_the_equals_sign_is_null(tmp_path: Path) -> None:
    assert load(tmp_path, "checkpoint.best=").checkpoint.best is None


def test_later_equals_signs_belong_to_the_value(tmp_path: Path) -> None:
    assert load(tmp_path, "reward=[{type: format, pattern: 'a=b'}]").reward[0].pattern == "a=b"  # type: ignore[union-attr]


def test_a_default_that_is_partly_set_keeps_its_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    field = RunConfig.model_fields["algorithm"]
    monkeypatch.setattr(field, "default", GrpoConfig(kl=KlConfig(coef=0.1, estimator="k2")))
    root = MapNode({}, DEFAULT)
    apply_override(root, read_override("algorithm.kl.coef=0.5"))
    assert plain(root) == {"algorithm": {"type": "grpo", "kl": {"coef": 0.5, "estimator": "k2"}}}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optim.lr", "1e-5"], "override 'optim.lr' has no '='; write it as 'optim.lr=1e-5'"),
        (["seed"], "override 'seed' has no '='; write it as 'seed=VALUE'"),
        (["=3"], "empty key"),
        (["optim..lr=3"], "empty key"),
        (["reward.1.weight=2"], r"reward has 1 item \(index 0\), so there is no reward\.1; set the whole list"),
        (["track.0=wandb"], "track has no items"),
        (["reward.x=1"], r"there is no reward\.x"),
        (["name.first=a"], r"name is a value \('digits', set by .*run\.yaml:1\) and has no keys"),
        (["model.path=*a"], "override model.path: not valid YAML at column 1.*quote a text"),
        (["model.path=[a"], "override model.path: not valid YAML"),
        (["optim.lrr=1"], "override optim.lrr=1: unknown key 'optim.lrr'; did you mean 'optim.lr'?"),
        (["train.steps=many"], "override train.steps=many: train.steps: got 'many'; must be a whole number"),
        (["train.steps=1.5"], "train.steps: got 1.5; must be a whole number"),
    ],
)
def test_a_wrong_override_is_refused_with_what_to_do(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, *overrides)


def test_all_wrong_overrides_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, "seed", "a..b=1", "reward.7.weight=1")
    assert str(error.value).count("\n") == 3
    assert "3 settings are wrong" in str(error.value)
