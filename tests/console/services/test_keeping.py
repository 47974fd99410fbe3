"""What is kept of chats: nobody's row is lost, however many keep theirs at once, and a large data set is left alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from console.services import keeping
from console.services.conversations import Column, Conversation, Conversations, Reply, Sampling, update, with_reply
from console.services.keeping import Kept, keep_as_sample, keep_marks, mark, marks_of
from mmrl.data import load_dataset
from mmrl.data.registry import DatasetRegistry
from mmrl.errors import DataError
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Choice, Marks
from mmrl.jobs.records import User
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.users import Users

COLUMNS = (Column("run", 0, "/m/0", "run@0"), Column("run", 9, "/m/9", "run@9"))


def test_of_two_who_keep_at_once_both_find_their_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    mia = User("u1", "Mia", None, "member", datetime.now(UTC))
    conversations = Conversations(mia, JobsSettings(), root=tmp_path / "conversations")
    chat = conversations.begin(COLUMNS)
    conversations.ask(chat.id, "Which?", (), Sampling())
    update(conversations.root, chat.id, lambda now: with_reply(now, 0, 0, Reply("red", "done", "stop", 1, 0.1)))
    chat = conversations.get(chat.id)
    with Database.open() as database:
        user = Users(database).local()

        def keep(answer: str) -> Kept:
            return keep_as_sample(chat, 0, 0, answer, "chat-samples", database=database, user=user)

        answers = ["red", "green", "blue", "white"]
        with ThreadPoolExecutor(len(answers)) as pool:
            kept = list(pool.map(keep, answers))
        assert sorted(each.num_rows for each in kept) == [1, 2, 3, 4]
        assert sorted(str(row.answer) for row in load_dataset("chat-samples@train")) == sorted(answers)
        version = DatasetRegistry().find("chat-samples").version
        assert keep("red") == Kept("chat-samples", version, 4, is_new=False)
        monkeypatch.setattr(keeping, "MAX_ROWS", 4)
        with pytest.raises(DataError, match="has 4 rows in train"):
            keep("black")


def test_of_several_people_what_most_prefer_becomes_one_pair_and_never_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    with Database.open() as database:
        users = Users(database)
        people = [users.local(), *(users.add(name, role="member") for name in ("Max", "Ben"))]
        chat = _answered(people[0], tmp_path, "red", "blue")
        choices: list[Choice] = ["a", "b", "a"]
        for person, choice in zip(people[:2], choices, strict=False):
            mark(chat, 0, 0, 1, choice, reason=None, marks=Marks(database, person))
        marks = Marks(database, people[0])
        marks.tell({each.item for each in marks.of_source(f"chat:{chat.id}")})
        with pytest.raises(DataError, match="no answer is preferred by most people"):
            keep_marks(chat, "m", database=database, user=people[0])
        mark(chat, 0, 0, 1, choices[2], reason=None, marks=Marks(database, people[2]))
        kept = keep_marks(chat, "m", database=database, user=people[0])
    assert kept.num_rows == 1
    (row,) = load_dataset("m@train")
    assert [row.meta[side][0]["content"][0]["text"] for side in ("chosen", "rejected")] == ["red", "blue"]


def test_who_may_still_judge_blind_makes_a_data_set_of_their_own_marks_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    with Database.open() as database:
        users = Users(database)
        mia, max_, ben = users.local(), users.add("Max", role="member"), users.add("Ben", role="member")
        chat = _answered(mia, tmp_path, "red", "blue")
        for person, choice in ((mia, "a"), (max_, "b"), (ben, "b")):
            mark(chat, 0, 0, 1, choice, reason=None, marks=Marks(database, person))  # type: ignore[arg-type]
        keep_marks(chat, "own", database=database, user=mia)
        found = marks_of(chat, database=database, user=mia)
        assert [each.user_id for each in found.marks] == [mia.id]
        assert found.num_hidden == 2
        Marks(database, mia).tell([found.marks[0].item])
        assert marks_of(chat, database=database, user=mia).num_hidden == 0
        assert marks_of(chat, database=database, user=max_).num_hidden == 2, "told is a person, and not all"
        keep_marks(chat, "all", database=database, user=mia)
    assert [_chosen(name) for name in ("own", "all")] == ["red", "blue"]


def _answered(owner: User, root: Path, *texts: str) -> Conversation:
    conversations = Conversations(owner, JobsSettings(), root=root / "conversations")
    chat = conversations.begin(COLUMNS)
    conversations.ask(chat.id, "Which?", (), Sampling())
    for column, text in enumerate(texts):
        reply = Reply(text, "done", "stop", 1, 0.1)
        update(conversations.root, chat.id, lambda now, c=column, r=reply: with_reply(now, 0, c, r))  # type: ignore[misc]
    return conversations.get(chat.id)


def _chosen(name: str) -> str:
    (row,) = load_dataset(f"{name}@train")
    return str(row.meta["chosen"][0]["content"][0]["text"])  # type: ignore[index,call-overload]
