"""Advantages from a function in the user's own Python file, and what is said of its faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch
from algorithms_checks import WORKED

from mmrl.algorithms import build_algorithm
from mmrl.config.algorithm import GrpoConfig, KlConfig
from mmrl.errors import ConfigError, RunFailedError


def advantages(path: Path, source: str, groups: oracle.Groups = WORKED, **advantage: Any) -> torch.Tensor:
    """What the function `advantages` of a file with `source` gives for the groups."""
    path = path / "mine.py"
    path.write_text(source)
    algorithm = build_algorithm(GrpoConfig.model_validate({"advantage": {"path": str(path), **advantage}}))
    scored = oracle.scored_groups(groups)
    result = algorithm.complete(scored, oracle.group_batch(scored, groups)).advantages
    assert result is not None
    return result


def test_one_number_for_each_response_goes_to_its_sampled_tokens(tmp_path: Path) -> None:
    found = advantages(tmp_path, "def advantages(group):\n    return group.returns - group.returns.max()\n")
    # Scores 1, 0 and 3, 1; the first response has a tool's answer at its second place.
    expected = [[0, 0, 0, 0], [-1, -1, 0, 0], [0, 0, 0, 0], [-2, 0, 0, 0]]
    assert found.tolist() == expected


def test_one_number_for_each_token_is_taken_where_the_policy_sampled(tmp_path: Path) -> None:
    found = advantages(tmp_path, "def advantages(group):\n    return group.mask.cumsum(-1) + 10\n")
    expected = [[11, 0, 12, 13], [11, 12, 0, 0], [11, 12, 13, 0], [11, 0, 0, 0]]
    assert found.tolist() == expected


def test_a_function_of_groups_gets_all_of_them_and_a_list_will_do(tmp_path: Path) -> None:
    source = """
def mine(groups, scale):
    most = max(float(group.scores.max()) for group in groups)
    return [[scale * float(score) / most for score in group.scores] for group in groups]
"""
    found = advantages(tmp_path, source, name="mine", arguments={"scale": 3.0})
    assert found[:, 0].tolist() == [1.0, 0.0, 3.0, 1.0]


def test_the_function_sees_parts_texts_and_the_penalty_in_the_returns(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def advantages(group):\n"
        "    assert [reward.parts[0].name for reward in group.group.rewards] == ['task', 'task']\n"
        "    assert group.lengths.tolist() == [2.0, 1.0]\n"
        "    return group.scores - group.returns\n"
    )
    groups = [[oracle.response(1.0, [1.0, None, 1.0]), oracle.response(0.0, [1.0])]]
    groups[0][0].reference = [-1.5, 0.0, -1.25]
    kl = KlConfig(coef=0.4, estimator="k1", where="reward")
    algorithm = build_algorithm(GrpoConfig.model_validate({"advantage": {"path": str(path)}, "kl": kl}))
    scored = oracle.scored_groups(groups)
    found = algorithm.complete(scored, oracle.group_batch(scored, groups)).advantages
    # k1 sums to 0.75 and 0 here.
    torch.testing.assert_close(found, torch.tensor([[0.3, 0, 0.3], [0, 0, 0]]))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return group.scores[:1]", r"returned shape \(1,\) for group 0; return \(2,\), .* or \(2, 4\), one for each"),
        ("return group.scores / 0", r"not finite for group 0, whose scores are \[1\.0, 0\.0\]"),
        ("return None", r"returned NoneType for group 0, which is no tensor of numbers"),
        ("return 'much'", r"returned str for group 0"),
        ("raise KeyError('best')", r"advantage function 'advantages' \(.*mine\.py\) raised KeyError: 'best'"),
        ("raise SystemExit(3)", r"raised SystemExit: 3"),
    ],
)
def test_faults_of_the_function_are_told_with_where_they_came_from(tmp_path: Path, body: str, message: str) -> None:
    with pytest.raises(RunFailedError, match=message):
        advantages(tmp_path, f"def advantages(group):\n    {body}\n")


def test_a_function_of_groups_must_give_an_entry_for_each(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"got 2 groups and returned 1 entries"):
        advantages(tmp_path, "def advantages(groups):\n    return [groups[0].scores]\n")


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("def advantages(group):\n    return 0\n", {"name": "advantage"}, r"no function 'advantage' .*did you mean"),
        ("def advantages(:\n", {}, r"advantage file .* does not load: SyntaxError"),
        ("def advantages(group, beta):\n    return 0\n", {}, r"is called with one group .*missing a required argument"),
        (
            "def advantages(group):\n    return 0\n",
            {"arguments": {"beta": 1}},
            r"the arguments beta: got an unexpected",
        ),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_before_the_run(
    tmp_path: Path, source: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        advantages(tmp_path, source, **settings)


def test_a_file_that_does_not_exist_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"advantage file '.*none\.py' does not exist"):
        build_algorithm(GrpoConfig.model_validate({"advantage": {"path": str(tmp_path / "none.py")}}))
