"""Which pairs people's marks make for rewards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from homes import Home
from label_builders import item, mark_of

from console.services import reward_marks
from console.services.reward_marks import marked_pairs, marked_rewards
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.marks import Answer, Marks
from mmrl.jobs.users import Users
from mmrl.runs.decoding import read_groups
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord


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


def test_a_step_with_many_marked_groups_is_read_once_and_not_again(
    fresh_home: Callable[[str], Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fresh_home("small").jobs["running"]
    reads: list[Path] = []

    def counted(path: Path, *, with_tokens: bool) -> list[GroupRecord]:
        reads.append(path)
        return read_groups(path, with_tokens=with_tokens)

    monkeypatch.setattr(reward_marks, "read_groups", counted)
    with Database.open() as database:
        jobs, marks = Jobs(database), Marks(database, Users(database).local())
        groups = RunReader(Path(jobs.get(run).run_dir)).sample_groups(60, "train")
        assert len(groups) > 1
        for group in groups:
            answers = [Answer(f"{run}/train/60/{group.group_id}", each.sample_idx) for each in group.by_reward[::3]]
            marks.add(f"run:{run}", group.prompt_id, answers[:2], ranks=(1, 2))
        for _ in range(2):
            found = marked_rewards(marks.all(), jobs)
            assert (found.num_pairs, found.num_unknown, len(reads)) == (len(groups), 0, 1)
    assert found.agreements[0].reward == "total"
    assert found.agreements[0].agrees == sum(group.by_reward[0].reward != group.by_reward[3].reward for group in groups)
