"""Agreement, disagreements and standings, against examples worked by hand."""

from __future__ import annotations

import pytest
from label_builders import item, mark_of, pair

from console.services.exports import make
from console.services.label_export import export_results
from console.services.label_results import (
    PersonCounts,
    agreement_of,
    counts_of_people,
    disagreements,
    standings,
)
from mmrl.jobs.marks import Choice


def test_agreement_of_two_on_four_pairs() -> None:
    """Both a, both a, both b, then a against b: p_o 3/4, p_e 1/2, kappa 1/2. One pair is judged by one alone."""
    pairs = [pair(f"p{number}") for number in range(5)]
    choices: list[tuple[Choice, Choice]] = [("a", "a"), ("a", "a"), ("b", "b"), ("a", "b")]
    marks = [
        mark_of(each, choice, user)
        for each, both in zip(pairs, choices, strict=False)
        for user, choice in zip(("mia", "max"), both, strict=True)
    ]
    found = agreement_of([*marks, mark_of(pairs[4], "both_bad")])
    ((one, other, kappa),) = found.kappas
    assert (one, other, kappa.num, kappa.value) == ("max", "mia", 4, pytest.approx(0.5))
    assert found.alpha.num == 4
    assert found.alpha.value == pytest.approx(1 - (2 / 8) / (30 / 56))
    assert (kappa.low or 1) < 0 < 0.5 < (kappa.high or 0), "four pairs tell little"


def test_rankings_agree_by_pairs_of_answers_and_count_once_each() -> None:
    """abc and acb: of three pairs two alike. p_e of (a, a, a) and (a, a, b) is 2/3, so kappa is 0."""
    group = item("p", "a", "b", "c")
    found = agreement_of([mark_of(group, (1, 2, 3), "mia"), mark_of(group, (1, 3, 2), "max")])
    ((_, _, kappa),) = found.kappas
    assert (kappa.num, kappa.value) == (1, pytest.approx(0.0))
    assert found.alpha.num == 1


def test_disagreements_are_listed_with_the_most_divided_first() -> None:
    group, alike, divided, alone = item("p", "a", "b", "c"), pair("q"), pair("r"), pair("s")
    marks = [
        *(mark_of(group, ranks, user) for ranks, user in (((1, 2, 3), "mia"), ((3, 2, 1), "max"))),
        *(mark_of(alike, "a", user) for user in ("mia", "max")),
        *(mark_of(divided, choice, user) for choice, user in (("tie", "mia"), ("a", "max"))),
        mark_of(alone, "a"),
    ]
    found = disagreements([alone, divided, alike, group], marks)  # type: ignore[arg-type]
    assert [(each.item.prompt.id, each.num_divided, len(each.marks)) for each in found] == [("p", 3, 2), ("r", 1, 2)]


def test_standings_count_what_most_chose_and_tell_how_sure_the_share_is() -> None:
    """run@0 against run@1: 3 won, 1 lost, one tie, one both bad, one divided; Wilson of 3 of 4: 0.30 to 0.95."""
    choices: list[list[Choice]] = [["a", "a", "b"], ["a"], ["a"], ["b"], ["tie"], ["both_bad"], ["a", "b"]]
    pairs = [pair(f"p{number}") for number in range(len(choices))]
    marks = [
        mark_of(each, choice, str(user))
        for each, own in zip(pairs, choices, strict=True)
        for user, choice in enumerate(own)
    ]
    first, second = standings(pairs, marks)
    assert (first.by, first.wins, first.losses, first.ties, first.all_bad, first.divided) == ("run@0", 3, 1, 1, 1, 1)
    assert (second.by, second.wins, second.losses) == ("run@1", 1, 3)
    assert (first.low, first.high) == (pytest.approx(0.3006, abs=1e-4), pytest.approx(0.9544, abs=1e-4))


def test_rankings_are_as_sure_as_their_prompts_are_many() -> None:
    """Five prompts, six makers: run@0 is best in each, 25 of 25 pairs. Wilson of 5 of 5: 0.566 and above; 25 of 25
    pairs would tell 0.867."""
    groups = [item(f"p{number}", *"abcdef") for number in range(5)]
    first, *_ = standings(groups, [mark_of(group, (1, 2, 3, 4, 5, 6)) for group in groups])
    assert (first.by, first.wins, first.losses, first.num_prompts) == ("run@0", 25, 0, 5)
    assert (first.low, first.high) == (pytest.approx(0.5655, abs=1e-4), 1.0)


def test_what_half_of_the_people_chose_is_divided() -> None:
    judged = pair("p")
    choices: list[Choice] = ["a", "a", "tie", "both_bad"]
    marks = [mark_of(judged, choice, str(user)) for user, choice in enumerate(choices)]
    first, second = standings([judged], marks)
    assert (first.wins, first.divided, second.losses, second.divided) == (0, 1, 0, 1)


def test_answers_of_one_maker_are_not_compared_with_each_other() -> None:
    group = item("p", "a", "b", by=("run@3", "run@3"))
    assert standings([group], [mark_of(group, "a")]) == []


def test_what_each_person_chose_is_counted_and_how_often_it_stood_left() -> None:
    """Of mia's five pairs: left, right, a tie, none good, and one of a chat. Of max's ranking of three no side."""
    pairs = [pair(f"p{n}") for n in range(5)]
    marks = [
        mark_of(pairs[0], "a", shown=(0, 1)),
        mark_of(pairs[1], "a", shown=(1, 0)),
        mark_of(pairs[2], "tie"),
        mark_of(pairs[3], "both_bad"),
        mark_of(pairs[4], "a", shown=()),
        mark_of(item("q", "x", "y", "z"), (1, 2, 2), "max"),
    ]
    mia, max_ = counts_of_people(marks)
    assert mia == PersonCounts("mia", 5, 3, 1, 1, num_left=1, num_sided=2, seconds=None)
    assert max_ == PersonCounts("max", 1, 1, 0, 0, num_left=0, num_sided=0, seconds=None)


def test_results_are_exported_with_intervals_a_row_for_each_maker_agreement_and_person() -> None:
    pairs = [pair(f"p{n}") for n in range(4)]
    marks = [mark_of(each, "a", user) for each in pairs for user in ("mia", "max")]
    export = export_results(
        "run", standings(pairs, marks), agreement_of(marks), counts_of_people(marks), {"mia": "Mia"}
    )
    rows = [record.values for record in export.records()]
    assert export.total == len(rows) == 6
    assert [(row["table"], row["of"]) for row in rows] == [
        ("result", "run@0"),
        ("result", "run@1"),
        ("agreement", "max and Mia"),
        ("agreement", "all"),
        ("person", "max"),
        ("person", "Mia"),
    ]
    # Wilson for 4 of 4: low = 4 / (4 + 3.841459) = 0.510109, high 1
    assert (rows[0]["value"], rows[0]["low"], rows[0]["high"]) == (1.0, pytest.approx(0.510109, abs=1e-6), 1.0)
    assert make(export, "csv").num_rows == 6
