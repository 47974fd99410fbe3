"""Checkpoints side by side: what changed prompt by prompt, against numbers counted by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_builders import SETTINGS, VERSIONS, evaluated

from console.services.checkpoint_compare import by_panel, chosen, compare, label_of, word_differences
from console.services.compare_export import export_comparison
from console.services.exports import make
from mmrl.data.images import ImageStore
from mmrl.errors import DataError
from mmrl.evaluation.panels import Panel, panel_of, save_panel
from mmrl.evaluation.records import Evaluation
from mmrl.types import Message, Sample, TextPart

ANSWERS = "7312"


@pytest.fixture
def panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Panel:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    prompts = [
        Sample(f"s{number}", (Message("user", (TextPart(f"Which is digit {number}?"),)),), answer)
        for number, answer in enumerate(ANSWERS)
    ]
    panel = panel_of(prompts, replace(SETTINGS, samples_per_prompt=1, ks=()), name="digits")
    save_panel(panel, ImageStore())
    return panel


def _asked(panel: Panel, step: int, answers: Sequence[str], tmp_path: Path, **changes: object) -> Evaluation:
    return evaluated(panel, step, *((answer,) for answer in answers), run=tmp_path / "home/runs/a-run", **changes)


def test_wins_ties_losses_and_changes_are_counted_prompt_by_prompt(panel: Panel, tmp_path: Path) -> None:
    """7 stays right, 3 is newly solved, 1 regresses, 2 stays wrong with another answer."""
    found = compare([_asked(panel, 0, "7918", tmp_path), _asked(panel, 9, "7359", tmp_path)])
    assert [row.changes for row in found.rows] == [("same",), ("solved",), ("lost",), ("same",)]
    assert (found.count(0, "solved"), found.count(0, "lost"), found.count(0, "same")) == (1, 1, 2)
    assert found.metrics == ("accuracy", "reward")
    result = found.comparison.results[0]["accuracy"]
    assert (result.first, result.second, result.better, result.same, result.worse) == (0.5, 0.5, 1, 2, 1)
    assert result.p_value == 1.0
    # 0, +1, -1, 0: mean 0, deviation sqrt(2 / 3), Student's t of 3 degrees 3.1824: 3.1824 · 0.8165 / 2 = 1.2992
    reward = found.comparison.results[0]["reward"]
    assert (reward.difference, reward.low, reward.high) == pytest.approx((0.0, -1.2992, 1.2992), abs=1e-4)
    assert (result.low, result.high) == (-1.0, 1.0), "no share differs by more"


def test_of_sampled_answers_only_none_and_some_are_solved_and_regressed(tmp_path: Path, panel: Panel) -> None:
    sampled = panel_of(panel.samples, replace(SETTINGS, samples_per_prompt=4, ks=()), name="sampled")
    save_panel(sampled, ImageStore())
    run = tmp_path / "home/runs/a-run"
    before = evaluated(sampled, 0, *map(tuple, ("7000", "3333", "0000", "2000")), run=run)
    after = evaluated(sampled, 9, *map(tuple, ("7700", "3330", "1000", "0000")), run=run)
    (group,) = by_panel([before, after])
    found = compare(chosen(group, []))
    assert [row.changes for row in found.rows] == [("oftener",), ("rarer",), ("solved",), ("lost",)]


def test_only_step_0_of_a_run_is_called_before_training(panel: Panel, tmp_path: Path) -> None:
    first = _asked(panel, 0, "7918", tmp_path)
    bought = replace(first, model=replace(first.model, path="/models/base", run=None, step=None))
    later = replace(first, model=replace(first.model, step=9))
    assert [label_of(each) for each in (first, bought, later)] == ["a-run@0, before training", "base", "a-run@9"]


def test_a_comparison_is_made_once(panel: Panel, tmp_path: Path) -> None:
    evaluations = [_asked(panel, 0, "7918", tmp_path), _asked(panel, 9, "7359", tmp_path)]
    assert compare(evaluations) is compare(evaluations)
    assert compare(evaluations[::-1]).comparison.evaluations[0] == evaluations[1]


def test_texts_of_one_word_a_thousand_times_are_compared_at_once() -> None:
    pieces = word_differences("a" + "!" * 3000, "b" + "!" * 1500)
    assert pieces[0] == ("b", True)
    assert "".join(text for text, _ in pieces) == "b" + "!" * 1500
    pieces = word_differences("so ! " + "! ? " * 400 + "x end", "so ? " + "? ! " * 400 + "y end")
    assert pieces == (("so ", False), ("? " + "? ! " * 400 + "y", True), (" end", False))


def test_where_nothing_was_graded_the_reward_alone_is_compared(panel: Panel, tmp_path: Path) -> None:
    found = compare([_asked(panel, 0, "7918", tmp_path, part="none"), _asked(panel, 9, "7358", tmp_path, part="none")])
    assert found.metrics == ("reward",)
    assert [row.changes for row in found.rows] == [("same",), ("better",), ("worse",), ("same",)]


def test_evaluations_are_grouped_by_what_was_asked_and_the_first_named_is_the_base(
    panel: Panel, tmp_path: Path
) -> None:
    first, second = _asked(panel, 0, "7918", tmp_path), _asked(panel, 9, "7359", tmp_path)
    third = _asked(panel, 20, "7312", tmp_path)
    other = replace(first, panel_hash="another", panel="other")
    groups = by_panel([other, first, second, third])
    assert [(group.name, len(group.evaluations)) for group in groups] == [("digits", 3), ("other", 1)]
    assert chosen(groups[0], []) == [first, third]
    assert chosen(groups[0], [third.id, "gone", first.id]) == [third, first]
    assert chosen(groups[1], []) == [other]


def test_steps_are_ordered_by_number_and_not_by_text(panel: Panel, tmp_path: Path) -> None:
    made = {step: _asked(panel, step, "7312", tmp_path) for step in (100, 9, 20)}
    (group,) = by_panel(list(made.values()))
    assert chosen(group, []) == [made[9], made[100]]


def test_what_differs_besides_the_weights_is_flagged(panel: Panel, tmp_path: Path) -> None:
    other = replace(VERSIONS, template="another", processor="another", rewards="another")
    found = compare([_asked(panel, 0, "7918", tmp_path), _asked(panel, 9, "7359", tmp_path, versions=other)])
    (flags,) = found.comparison.flags
    assert [flag.removeprefix("not the same: ") for flag in flags] == [
        "the chat template",
        "the image processor",
        "the rewards, or code of theirs",
    ]


def test_a_comparison_is_exported_response_by_response_with_its_figures(panel: Panel, tmp_path: Path) -> None:
    found = compare([_asked(panel, 0, "7918", tmp_path), _asked(panel, 9, "7359", tmp_path)])
    export = export_comparison(found, found.rows[1:3], only="solved")
    rows = [json.loads(line) for line in make(export, "jsonl").data.splitlines()]
    assert [(row["checkpoint"], row["change"], row["response"], row["part exact"]) for row in rows] == [
        ("a-run@0, before training", "base", "9", 0.0),
        ("a-run@9", "newly solved", "3", 1.0),
        ("a-run@0, before training", "base", "1", 1.0),
        ("a-run@9", "regressed", "5", 0.0),
    ]
    assert export.about["accuracy of a-run@9"].endswith("1 wins, 2 ties, 1 losses on 4 prompts")
    assert export.about["prompts"] == "2 of 4, newly solved"


def test_files_that_are_gone_are_told(panel: Panel, tmp_path: Path) -> None:
    evaluations = [_asked(panel, step, "7312", tmp_path) for step in (0, 9)]
    assert evaluations[1].folder is not None
    for file in evaluations[1].folder.glob("*.parquet"):
        file.unlink()
    with pytest.raises(DataError, match="an evaluation cannot be read"):
        compare(evaluations)


def test_words_that_the_base_lacks_are_told_and_nothing_is_lost() -> None:
    assert word_differences("a red box", "a blue box") == (("a ", False), ("blue", True), (" box", False))
    assert word_differences("so it is", "so so it") == (("so ", False), ("so ", True), ("it", False))
    assert word_differences("a a", "a") == (("a", False),)
    assert word_differences("", "new text") == (("new text", True),)
    assert word_differences("old", "") == ()
    long = "word " * 3000
    assert "".join(text for text, _ in word_differences(long, long + "end")) == long + "end"
