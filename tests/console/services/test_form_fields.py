"""The form of a run is made from the config's models, whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.services.draft_text import with_value
from console.services.form_fields import BY_ITSELF, FEW, FormField, few_fields, part_fields, run_form, to_value
from mmrl.config.algorithm import algorithm_types
from mmrl.config.loading import build_config
from mmrl.config.reward_form import LengthRewardConfig
from mmrl.config.schema import known_keys

KINDS = ("rl", "sft", "preference", "reward_model")
BASE = {"name": "a", "model": {"path": "m"}, "data": {"train": "d"}}


def fields(**data: object) -> dict[str, FormField]:
    return {field.key: field for group in run_form(data) for field in group.fields}


def every_field() -> Iterator[FormField]:
    """Of all kinds and algorithms, with every part turned on."""
    on = {"model": {"lora": {}}, "critic": {"optim": {}}, "algorithm": {"entropy_target": {}, "policy_loss": {}}}
    for algorithm in algorithm_types():
        yield from fields(kind="rl", **(on | {"algorithm": {**on["algorithm"], "type": algorithm}})).values()
    for kind in KINDS[1:]:
        yield from fields(kind=kind, **on).values()


def test_every_setting_of_the_config_is_in_the_form_or_asked_by_itself() -> None:
    shown = {field.key for field in every_field()}
    written_whole = {field.key for field in every_field() if field.kind in ("yaml", "type")}
    missing = []
    for key in known_keys():
        above = {key.rsplit(".", cut)[0] for cut in range(1, key.count(".") + 1)} | {key}
        is_group = any(other.startswith(f"{key}.") for other in known_keys())
        is_own = any(each == key or each.startswith(("reward", "data.train", "preference")) for each in above)
        if not (shown & {key} or is_group or is_own or above & written_whole or above & set(BY_ITSELF)):
            missing.append(key)
    assert [key for key in missing if not key.endswith(".type")] == []


def test_every_field_says_what_it_means() -> None:
    assert [field.key for field in every_field() if not field.help] == []


def test_the_fields_that_are_asked_first_exist() -> None:
    assert {field.key for field in every_field() if field.is_few} == set(FEW)


def test_a_kind_shows_its_own_groups_alone() -> None:
    groups = {kind: {group.key.partition(".")[0] for group in run_form({"kind": kind})} for kind in KINDS}
    assert "sft" in groups["sft"]
    assert not {"algorithm", "preference", "reward_model", "canary"} & groups["sft"]
    assert not {"sft", "preference", "reward_model"} & groups["rl"]


def test_the_fields_of_an_algorithm_are_those_of_the_chosen_type() -> None:
    assert fields(algorithm={"type": "dapo"})["algorithm.overlong_buffer"].default == 0.2
    assert "algorithm.overlong_buffer" not in fields(algorithm={"type": "grpo"})
    assert fields(algorithm={"type": "dapo"})["algorithm.group_size"].default == 16


def test_a_part_shows_its_fields_once_it_is_turned_on() -> None:
    assert "model.lora.rank" not in fields()
    lora = fields(model={"lora": {}})
    assert (lora["model.lora"].kind, lora["model.lora.rank"].minimum, lora["model.lora.rank"].maximum) == (
        "part",
        1,
        512,
    )


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("optim.lr", "number"),
        ("train.steps", "whole"),
        ("model.dtype", "choice"),
        ("model.freeze", "choices"),
        ("data.shuffle", "switch"),
        ("rollout.stop", "texts"),
        ("optim.betas", "yaml"),
        ("placement.pools", "yaml"),
        ("data.image_root", "text"),
    ],
)
def test_kinds_follow_from_the_annotations(key: str, kind: str) -> None:
    assert fields()[key].kind == kind


def test_the_default_of_every_field_is_one_that_the_config_takes() -> None:
    text = "name: a\nmodel: {path: m, dtype: float32}\ndata: {train: d}\nreward: [{type: exact}]\n"
    for field in fields(kind="rl").values():
        if not field.is_required and field.kind not in ("type", "part"):
            text = with_value(text, field.key, field.default)
    from ruamel.yaml import YAML

    loaded = build_config(YAML(typ="safe", pure=True).load(text))
    expected = build_config(BASE | {"reward": [{"type": "exact"}]})
    assert loaded.run_config == expected.run_config


def test_what_is_typed_becomes_the_number_that_it_is_and_else_stays_text() -> None:
    lr, pools = fields()["optim.lr"], fields()["placement.pools"]
    assert to_value(lr, " 1e-6 ") == 1e-6
    assert to_value(lr, "fast") == "fast"
    assert to_value(pools, "{a: {workers: 2}}") == {"a": {"workers": 2}}
    assert to_value(pools, "{a: [") == "{a: ["


def test_rewards_get_their_fields_in_the_same_way() -> None:
    named = {field.key: field for field in part_fields(LengthRewardConfig, {}, "reward.0.")}
    assert "reward.0.weight" in named
    assert "reward.0.type" not in named


def test_what_is_asked_first_comes_in_its_order() -> None:
    keys = [field.key for field in few_fields(run_form({"kind": "rl"}))]
    assert keys == [key for key in FEW if key in keys]
    assert "optim.lr" in keys
