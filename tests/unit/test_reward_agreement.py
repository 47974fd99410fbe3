"""Whether a reward orders answers as people do: counts and shares worked by hand, and the command over real pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mmrl.cli.reward import app
from mmrl.errors import DataError
from mmrl.evaluation.majority import most_chosen
from mmrl.evaluation.reward_agreement import Judged, order_agreement


def test_pairs_are_counted_by_what_people_and_the_reward_say() -> None:
    pairs = [
        Judged("p1", "a", 1.0, 0.0),
        Judged("p2", "a", 0.7, 0.2),
        Judged("p3", "b", 0.0, 0.5),
        Judged("p4", "b", 0.9, 0.1),  # the other way round
        Judged("p5", "a", 0.3, 0.3),  # the reward says nothing
        Judged("p6", "b", None, 1.0),
        Judged("p7", "tie", 1.0, 0.0),
    ]
    found = order_agreement("math", pairs)
    assert (found.agrees, found.disagrees) == (3, 1)
    assert (found.reward_ties, found.missing, found.people_ties) == (1, 1, 1)
    assert found.share == 0.75
    # Wilson for 3 of 4: z = 1.959964, z² = 3.841459; middle (0.75 + 3.841459/8) / 1.960365 = 0.627526,
    # half 1.959964 · sqrt(0.75·0.25/4 + 3.841459/64) / 1.960365 = 0.326884
    assert (found.low, found.high) == pytest.approx((0.300642, 0.954413), abs=2e-5)


def test_without_an_ordered_pair_there_is_no_share() -> None:
    found = order_agreement("math", [Judged("p", "a", 1.0, 1.0), Judged("p", "divided", 0.0, 1.0)])
    assert (found.share, found.low, found.high) == (None, None, None)


def test_pairs_of_one_prompt_make_the_share_no_surer() -> None:
    """Fifteen pairs of each of four prompts, three in four as people say: as sure as 3 of 4."""
    pairs = [Judged(f"p{number // 15}", "a", float(number % 4 > 0), 0.5) for number in range(60)]
    found = order_agreement("math", pairs)
    assert (found.agrees, found.disagrees, found.num_prompts, found.share) == (45, 15, 4, 0.75)
    assert (found.low, found.high) == pytest.approx((0.300642, 0.954413), abs=2e-5)


@pytest.mark.parametrize(
    ("choices", "most"),
    [
        (["a"], "a"),
        (["a", "b", "b"], "b"),
        (["a", "b"], "divided"),
        (["a", "a", "a", "tie", "both_bad"], "a"),
        (["a", "tie", "both_bad"], "divided"),
        (["a", "a", "tie", "both_bad"], "divided"),
        (["tie", "tie", "a"], "tie"),
    ],
)
def test_more_than_half_of_the_people_decide(choices: list[Any], most: str) -> None:
    assert most_chosen(choices) == most


def test_the_command_scores_both_answers_of_each_pair(tmp_path: Path) -> None:
    rows = [
        {"prompt": "3 + 4?", "chosen": r"\boxed{7}", "rejected": r"\boxed{8}", "answer": "7"},
        {"prompt": "1 + 1?", "chosen": "two", "rejected": r"\boxed{2}", "answer": "2"},
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "four", "answer": "4"},
    ]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tmp_path / "config.yaml"
    config.write_text("name: a\nmodel: {path: m}\ndata: {train: d}\nreward: [{type: exact}]\n")
    result = CliRunner().invoke(app, ["agreement", str(config), "--marks", str(data), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    total, exact = told["agreement"]
    assert (told["pairs"], total["agrees"], total["disagrees"], total["reward_ties"]) == (3, 1, 1, 1)
    assert exact["reward"] == "exact"
    assert [row["rejected"]["total"] for row in told["rows"]] == [1.0]
    shown = CliRunner().invoke(app, ["agreement", str(config), "--marks", str(data)])
    assert "rejected: \\boxed{2}" in shown.stdout


def test_data_without_pairs_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "3 + 4?", "answer": "7"}\n')
    config = tmp_path / "config.yaml"
    config.write_text(f"name: a\nmodel: {{path: m}}\ndata: {{train: {data}}}\nreward: [{{type: exact}}]\n")
    result = CliRunner().invoke(app, ["agreement", str(config)])
    assert isinstance(result.exception, DataError)
    assert "chosen" in str(result.exception)
