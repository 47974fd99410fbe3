"""The manual of the algorithms against the code."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any, Literal

import algorithms_oracle as oracle
import torch
from algorithms_checks import WORKED
from torch import Tensor

from mmrl.algorithms import ALGORITHMS
from mmrl.algorithms.advantages import has_spread
from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import ClippedPolicyConfig, LossAggregation

MANUAL = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text(encoding="utf-8")


def test_every_algorithm_has_a_section_with_its_source_defaults_and_use() -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## )", MANUAL, flags=re.MULTILINE | re.DOTALL))
    for name in ALGORITHMS:
        for word in ("arXiv", "- Advantage:", "- Loss", "- Defaults:", "- When:"):
            assert word in sections[name], f"{name}: {word}"


def test_the_walk_through_makes_an_algorithm_that_works() -> None:
    blocks = [textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```", MANUAL, re.M | re.S)]
    names: dict[str, Any] = {
        "ClippedAlgorithm": ClippedAlgorithm,
        "ClippedPolicyConfig": ClippedPolicyConfig,
        "GroupScores": GroupScores,
        "Literal": Literal,
        "LossAggregation": LossAggregation,
        "Tensor": Tensor,
        "__name__": __name__,
        "has_spread": has_spread,
        "torch": torch,
    }
    for block in blocks:
        exec(compile(block, "docs/algorithms.md", "exec"), names)
    algorithm = names["MedianBaselineAlgorithm"](names["MedianBaselineConfig"]())
    scored = oracle.scored_groups([[oracle.response(score, [1.0]) for score in (0.0, 1.0, 5.0)], *WORKED])
    groups = [[oracle.response(score, [1.0]) for score in (0.0, 1.0, 5.0)], *WORKED]
    advantages = algorithm.advantages(scored, oracle.group_batch(scored, groups))
    assert advantages[:3, 0].tolist() == [-1.0, 0.0, 4.0]
