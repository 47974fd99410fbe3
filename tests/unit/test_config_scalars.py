"""How YAML scalars become values: floats in every spelling, and text that YAML 1.1 would have misread."""

from __future__ import annotations

from pathlib import Path

import pytest
from config_files import write_config
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrl.config import RunConfig, build_config, dump_yaml, load_config
from mmrl.config.dump import value_text
from mmrl.config.nodes import Origin, Scalar, plain
from mmrl.config.yaml_text import read_yaml
from mmrl.errors import ConfigError


@pytest.mark.parametrize("text", ["1e-6", "1E-6", "1.e-6", "1.0e-6", "0.000001", "1.0E-06"])
def test_a_small_number_is_the_same_float_from_file_and_override(tmp_path: Path, text: str) -> None:
    """L01."""
    from_file = load_config(write_config(tmp_path, f"optim: {{lr: {text}}}\n")).config
    from_override = load_config(write_config(tmp_path), [f"optim.lr={text}"]).config
    assert from_file.optim.lr == from_override.optim.lr == 1e-6
    assert isinstance(from_file.optim.lr, float)


def test_5e_4_is_a_float_in_a_list_too(tmp_path: Path) -> None:
    assert load_config(write_config(tmp_path), ["optim.betas=[5e-4, .5]"]).config.optim.betas == (0.0005, 0.5)


@pytest.mark.parametrize(
    "text", ["no", "yes", "off", "0123", "12:30", "123", "1_000", "0x1F", "1e-6", "2024-01-01", "true", "1.50", "y"]
)
def test_text_fields_keep_what_was_written(tmp_path: Path, text: str) -> None:
    """L04."""
    body = f"model: {{path: m}}\ndata: {{train: d}}\nreward: [{{type: exact, name: {text}}}]\n"
    from_file = load_config(write_config(tmp_path, body, base=f"name: {text}\n")).config
    from_override = load_config(write_config(tmp_path), [f"name={text}", f"rollout.stop=[{text}]"]).config
    assert from_file.name == from_file.reward[0].part_name == text
    assert from_override.name == text
    assert from_override.rollout.stop == (text,)


def test_free_arguments_take_numbers_as_yaml_reads_them_and_quotes_make_text(tmp_path: Path) -> None:
    function = "{type: function, path: f.py, arguments: {a: 0123, b: '0123', c: 12:30, d: 1e-3, e: no, f: 2024-01-01}}"
    reward = load_config(write_config(tmp_path), [f"reward=[{function}]"]).config.reward[0]
    assert reward.arguments == {  # type: ignore[union-attr]
        "a": 123,
        "b": "0123",
        "c": "12:30",
        "d": 0.001,
        "e": "no",
        "f": "2024-01-01",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0o17", 15),
        ("0x1f", 31),
        ("-0x10", -16),
        ("+3", 3),
        ("1_000", 1000),
        ("null", None),
        ("~", None),
        ("TRUE", True),
        ("false", False),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("!!str 1", "1"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    node = read_yaml(text, lambda line: Origin("file", f"f:{line}"))
    assert isinstance(node, Scalar)
    assert node.value == value
    assert type(node.value) is type(value)


def test_null_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name: got null; must be text"):
        load_config(write_config(tmp_path), ["name=null"])


def test_true_is_no_number(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.yaml:5: seed: got true; must be a number"):
        load_config(write_config(tmp_path, "seed: true\n"))


def test_yes_and_no_mean_true_and_false_where_those_are_wanted(tmp_path: Path) -> None:
    config = load_config(write_config(tmp_path, "eval: {at_start: yes}\n"), ["data.shuffle=no"]).config
    assert config.data.shuffle is False
    assert config.eval.at_start is True


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write_config(tmp_path), ["optim.lr=.nan", "optim.eps=.inf"])
    assert "optim.lr: got nan; must be a finite number" in str(error.value)
    assert "optim.eps: got inf; must be a finite number" in str(error.value)


@pytest.mark.thorough
@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1, max_size=20))
def test_any_name_survives_dumping_and_loading(name: str) -> None:
    config = RunConfig(name=name, kind="sft", model={"path": "m"}, data={"train": "d"})  # type: ignore[arg-type]
    node = read_yaml(dump_yaml(config), lambda line: Origin("file", str(line)))
    assert build_config(plain(node)).config == config  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.one_of(st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.booleans()))
def test_a_value_as_shown_is_read_back_as_an_override(value: object) -> None:
    node = read_yaml(value_text([value]), lambda line: Origin("override"))
    assert plain(node) == [value]  # type: ignore[arg-type]
