"""The manual of the algorithms against the code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import algorithms_oracle as oracle
import pytest
from algorithms_checks import WORKED
from ruamel.yaml import YAML

from mmrl.algorithms import ALGORITHMS, build_algorithm
from mmrl.config import build_config, load_config
from mmrl.config.schema import known_keys

DOCS = Path(__file__).parents[2] / "docs"
MANUAL = (DOCS / "algorithms.md").read_text(encoding="utf-8")
PARTS = (DOCS / "algorithm-parts.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_its_source_defaults_and_use_in_the_manual_or_at_the_top_of_its_file(name: str) -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## )", MANUAL, flags=re.MULTILINE | re.DOTALL))
    text = sections.get(name) or str(sys.modules[ALGORITHMS[name].__module__].__doc__)
    for word in (r"arXiv|Source:", "Advantage:", "Loss.*:", "Defaults:", "When:"):
        assert re.search(word, text), f"{name}: {word}"
    assert name not in sections or f"[`{name}`](#{name})" in MANUAL


def test_every_algorithm_in_the_table_of_the_manual_exists_and_has_its_section() -> None:
    named = set(re.findall(r"^\| \[`(\w+)`\]\(#\w+\)", MANUAL, flags=re.MULTILINE))
    assert len(named) >= 18
    assert named <= ALGORITHMS.keys()
    assert all(f"\n## {name}\n" in MANUAL for name in named)


@pytest.mark.parametrize("block", [*blocks(MANUAL, "yaml"), *blocks(PARTS, "yaml")])
def test_every_config_in_the_manual_loads(block: str) -> None:
    run = {"name": "x", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
    assert build_config({**run, **YAML(typ="safe", pure=True).load(block)}).config


def test_the_advantage_function_of_the_manual_is_taken_by_the_two_lines_beside_it(tmp_path: Path) -> None:
    (source,) = blocks(PARTS, "python")
    (settings,) = [block for block in blocks(PARTS, "yaml") if "my_advantages.py" in block]
    (tmp_path / "my_advantages.py").write_text(source)
    run = "name: x\nmodel: {path: m}\ndata: {train: d}\nreward: [{type: exact}]\n"
    (tmp_path / "run.yaml").write_text(run + settings)
    algorithm = build_algorithm(load_config(tmp_path / "run.yaml").config.algorithm)
    groups = [[oracle.response(score, [1.0]) for score in (0.0, 1.0, 5.0)], *WORKED]
    scored = oracle.scored_groups(groups)
    advantages = algorithm.complete(scored, oracle.group_batch(scored, groups)).advantages
    assert advantages is not None
    assert advantages[:3, 0].tolist() == [-1.0, 0.0, 4.0]


def test_the_settings_in_the_table_of_other_frameworks_exist() -> None:
    (table,) = re.findall(r"^## Names elsewhere\n(.*)", PARTS, re.M | re.S)
    ours = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    known = {part for key in known_keys() for part in key.split(".")}
    values: set[Any] = {
        *ALGORITHMS,
        "cispo",
        "sapo",
        "plain",
        "gspo",
        "loss",
        "reward",
        "k1",
        "k2",
        "k3",
        "tis",
        "icepop",
    }
    values |= {"token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant", "sequence", "or"}
    for cell in ours:
        for word in re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`([^`]*)`", cell))):
            assert word in known | values, f"{word} in {cell}"
