"""Text that would cost minutes or gigabytes to read is refused while it is scanned."""

from __future__ import annotations

import time

import pytest

from mmrl.config import yaml_bounds
from mmrl.config.dump import yaml_text
from mmrl.config.yaml_bounds import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, MAX_STORED_BYTES
from mmrl.config.yaml_text import plain_yaml
from mmrl.errors import ConfigError
from mmrl.jobs.config_checks import config_hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: " + "[" * 20_000, "x:2: maps and lists stand too deep in each other: more than 100 brackets"),
        ("{a: " * 5_000, "x:1: maps and lists stand too deep in each other: more than 100 brackets"),
        ("a: " + "[" * 400 + "]" * 400, "x:1: maps and lists stand too deep in each other: more than 100 brackets"),
        ("- " * 5_000, "x:1: maps and lists stand too deep in each other"),
        ("\n".join(" " * depth + "a:" for depth in range(1500)), "x:1: maps and lists stand too deep in each other"),
        ("a: " + "x" * MAX_CHARACTERS, "x:1: the text has 2,000,003 characters; at most 2,000,000 are read"),
    ],
)
def test_a_text_beyond_every_bound_is_refused_at_once(text: str, message: str) -> None:
    begin = time.process_time()
    with pytest.raises(ConfigError) as caught:
        plain_yaml(text, "x")
    assert str(caught.value).startswith(message)
    assert time.process_time() - begin < 0.5


def test_brackets_as_deep_as_allowed_and_those_in_text_are_read() -> None:
    assert plain_yaml("a: " + "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, "x") != {"a": 1}
    assert plain_yaml("a: '" + "[" * 500 + "'", "x") == {"a": "[" * 500}


def test_a_long_list_is_refused_before_all_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_bounds, "_MAX_TOKENS", 200)
    with pytest.raises(ConfigError, match=r"x:1[01]: more than 20,000 values; put data into files"):
        plain_yaml("a: [" + "1, 1, 1, 1, 1, 1, 1, 1, 1, 1,\n" * 1000, "x")


def test_an_alias_of_what_it_stands_in_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"aliases .* make the config endless"):
        plain_yaml("a: &a [*a]", "x")


def test_a_job_has_no_config_that_its_trainer_could_not_read() -> None:
    config_hash({"note": "x" * (MAX_STORED_BYTES - 100)})
    with pytest.raises(ConfigError, match=r"the config has 1,000,011 bytes; at most 1,000,000 are allowed"):
        config_hash({"note": "x" * MAX_STORED_BYTES})


def test_a_job_has_no_more_values_than_its_trainer_reads() -> None:
    most = {"name": "a", "list": [{"b": 1}] * ((MAX_NODES - 3) // 2)}
    config_hash(most)
    assert plain_yaml(yaml_text(most), "x") == most
    with pytest.raises(ConfigError, match=r"the config has 20,001 values with its defaults; at most 20,000 are read"):
        config_hash({**most, "more": [1]})
    with pytest.raises(ConfigError, match=r"more than 20,000 values"):
        plain_yaml(yaml_text({**most, "more": [1]}), "x")
