"""Which pairs people's marks make for rewards."""

from __future__ import annotations

from label_builders import item, mark_of

from console.services.reward_marks import marked_pairs


def test_who_judged_two_answers_as_a_pair_and_in_a_ranking_votes_once_with_the_last() -> None:
    group = item("p", "a", "b", "c")
    two = item("p", "a", "b")
    assert two.answers == group.answers[:2]
    marks = [
        mark_of(two, "b", "mia", id="3"),
        mark_of(group, (1, 2, 3), "mia", id="1"),
        mark_of(two, "a", "max", id="2"),
    ]
    votes = {(pair.a, pair.b): sorted(pair.choices) for pair in marked_pairs(marks)}
    a, b, c = group.answers
    assert votes == {(a, b): ["a", "b"], (a, c): ["a"], (b, c): ["a"]}
