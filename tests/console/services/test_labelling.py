"""Pairs to judge, agreement and the data set of marks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from evaluation_builders import SETTINGS, evaluated
from homes import Home

from console.services.labelling import Pair, agreement, as_preferences, next_pair, pairs_of, register_marks
from mmrl.data.dataset import load_dataset
from mmrl.data.images import ImageStore
from mmrl.errors import DataError
from mmrl.evaluation.panels import panel_of, save_panel
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.marks import Choice, Mark
from mmrl.jobs.users import Users
from mmrl.types import Message, Sample, TextPart

Homes = Callable[[str], Home]
NUM = 20


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Pair]:
    """Twenty prompts, two answers of each of two checkpoints; of even numbers the second answers are alike."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    prompts = [Sample(f"s{n}", (Message("user", (TextPart(f"Digit {n}?"),)),), str(n)) for n in range(NUM)]
    panel = panel_of(prompts, SETTINGS, name="digits")
    save_panel(panel, ImageStore())
    first, second = (
        evaluated(
            panel, step, *((f"{word} {n}", f"{word if n % 2 else 'same'} again") for n in range(NUM)), run=tmp_path
        )
        for step, word in ((0, "old"), (9, "new"))
    )
    return pairs_of(first, second)


def _mark(pair: Pair, choice: Choice, user: str = "mia") -> Mark:
    return Mark("id", "panel", pair.prompt.id, pair.a, pair.b, "a", choice, None, None, user, datetime.now(UTC))


def test_answers_that_read_the_same_are_no_pair(pairs: list[Pair]) -> None:
    assert len(pairs) == NUM + NUM // 2
    assert all(pair.text_a != pair.text_b for pair in pairs)
    assert {pair.text_a.split()[0] for pair in pairs} == {"old"}


def test_sides_are_random_by_pair_and_person_and_stay_over_reloads(pairs: list[Pair]) -> None:
    sides = [pair.left_for(user) for user in ("mia", "max") for pair in pairs]
    assert sides == [pair.left_for(user) for user in ("mia", "max") for pair in pairs]
    assert 15 < Counter(sides)["a"] < 45
    assert sides[: len(pairs)] != sides[len(pairs) :]


def test_each_pair_comes_once_in_an_order_of_ones_own_and_skipped_ones_last(pairs: list[Pair]) -> None:
    orders = {}
    for user in ("mia", "max"):
        marks: list[Mark] = []
        seen = []
        while (pair := next_pair(pairs, marks, user, skipped=frozenset({"s3"}))) is not None:
            seen.append(pair.key)
            marks.append(_mark(pair, "tie", user))
        assert sorted(map(str, seen)) == sorted(str(pair.key) for pair in pairs)
        assert {prompt for prompt, _, _ in seen[-2:]} == {"s3"}
        orders[user] = seen
    assert orders["mia"] != orders["max"]


def test_agreement_counts_people_pairs_and_what_most_chose(pairs: list[Pair]) -> None:
    """Four pairs: both a, both a, both b, then a against b: p_o 3/4, p_e 1/2, kappa 1/2."""
    choices: list[tuple[Choice, Choice]] = [("a", "a"), ("a", "a"), ("b", "b"), ("a", "b")]
    marks = [
        _mark(pair, choice, user)
        for pair, both in zip(pairs, choices, strict=False)
        for user, choice in zip(("mia", "max"), both, strict=True)
    ]
    found = agreement([*marks, _mark(pairs[5], "both_bad")])
    assert found.num_marks == {"mia": 5, "max": 4}
    assert found.kappas == [("max", "mia", 4, pytest.approx(0.5))]
    assert found.alpha == pytest.approx(1 - (2 / 8) / (30 / 56))
    assert found.wins == {"a": 2, "b": 1, "split": 1, "both_bad": 1}


def test_most_peoples_choice_becomes_chosen_and_rejected(pairs: list[Pair]) -> None:
    marks = [_mark(pairs[0], "b"), _mark(pairs[0], "b", "max"), _mark(pairs[0], "a", "ben"), _mark(pairs[1], "tie")]
    marks += [_mark(pairs[2], "a"), _mark(pairs[2], "b", "max")]
    (row,) = as_preferences(pairs, marks)
    assert row.meta["chosen"][0]["content"][0]["text"] == pairs[0].text_b
    assert row.meta["rejected"][0]["content"][0]["text"] == pairs[0].text_a
    assert row.messages == pairs[0].prompt.messages


def test_a_data_set_of_marks_holds_back_whole_prompts(pairs: list[Pair]) -> None:
    with Database.open() as database:
        user = Users(database).local()
        marks = [_mark(pair, "a") for pair in pairs]
        info = register_marks("marks", pairs, marks, source="people", database=database, user=user)
        assert {name: split.num_rows for name, split in info.splits.items()} in (
            {"train": t, "test": 30 - t} for t in (26, 27, 28)
        )
        prompts = {
            split: {str(sample.messages) for sample in load_dataset(f"marks@{split}")} for split in ("train", "test")
        }
        assert not prompts["train"] & prompts["test"]
        assert len(prompts["test"]) == 2
        with pytest.raises(DataError, match="no pair has an answer that most people prefer"):
            register_marks("none", pairs, [_mark(pairs[0], "tie")], source="people", database=database, user=user)
        viewer = Users(database).add("Vic", role="viewer")
        with pytest.raises(ForbiddenError, match="Vic may not add data sets"):
            register_marks("none", pairs, marks, source="people", database=database, user=viewer)
