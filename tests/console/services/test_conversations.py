"""Conversations as files: what is refused, what a restart of the console leaves, and images on their way in."""

from __future__ import annotations

import io
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PIL import Image

from console.services.answers import Answers
from console.services.chat_export import export_of
from console.services.chat_images import MAX_IMAGES, store_images
from console.services.conversations import Column, Conversation, Conversations, Reply, Sampling, update, with_reply
from console.services.exports import make
from mmrl.errors import ConfigError, DataError, NotFoundError
from mmrl.jobs.records import User
from mmrl.jobs.settings import JobsSettings
from mmrl.serving.endpoint import Endpoint

COLUMNS = (Column("run", 0, "/m/0", "run@0"), Column("run", 9, "/m/9", "run@9"))
MIA = User("u1", "Mia", None, "member", datetime.now(UTC))


@pytest.fixture
def conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conversations:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    return Conversations(MIA, JobsSettings(), root=tmp_path / "conversations")


def _answered(conversations: Conversations, *texts: str) -> Conversation:
    chat = conversations.begin(COLUMNS, system="Be brief.")
    conversations.ask(chat.id, "Which?", (), Sampling())
    for column, text in enumerate(texts):
        reply = Reply(text, "done", "stop", 1, 0.1)
        update(conversations.root, chat.id, lambda now, c=column, r=reply: with_reply(now, 0, c, r))  # type: ignore[misc]
    return conversations.get(chat.id)


def test_each_checkpoint_is_given_its_own_answers_so_far(conversations: Conversations) -> None:
    chat = _answered(conversations, "red", "blue")
    chat = conversations.ask(chat.id, "Sure?", (), Sampling(seed=3))
    told = [[(message.role, message.text) for message in chat.prompt(1, column)] for column in (0, 1)]
    begun = [("system", "Be brief."), ("user", "Which?")]
    assert told[0] == [*begun, ("assistant", "red"), ("user", "Sure?")]
    assert told[1] == [*begun, ("assistant", "blue"), ("user", "Sure?")]
    with pytest.raises(DataError, match="still being answered"):
        conversations.ask(chat.id, "And now?", (), Sampling())


def test_what_the_end_of_the_console_cut_off_says_so_and_can_be_gone_on_with(conversations: Conversations) -> None:
    chat = conversations.begin(COLUMNS)
    conversations.ask(chat.id, "Which?", (), Sampling())
    half = Reply("half of", "writing")
    update(conversations.root, chat.id, lambda now: with_reply(now, 0, 0, half))
    Answers(conversations.root).settle(chat.id)
    reply = conversations.get(chat.id).turns[0].replies[0]
    assert (reply.text, reply.state) == ("half of", "failed")
    assert "console was ended" in (reply.error or "")
    assert len(conversations.ask(chat.id, "Again?", (), Sampling()).turns) == 2


def test_a_server_that_is_gone_is_told_without_its_address(conversations: Conversations) -> None:
    chat = conversations.begin(COLUMNS)
    asked = conversations.ask(chat.id, "Which?", (), Sampling())
    answers = Answers(conversations.root)
    answers.start(asked, 0, [Endpoint("http://127.0.0.1:9", "m", 1, "secret"), None])
    end = time.monotonic() + 20
    while answers.is_writing(chat.id) and time.monotonic() < end:
        time.sleep(0.02)
    told = [reply.error for reply in conversations.get(chat.id).turns[0].replies]
    assert told == [
        "the server does not answer any more; start it again",
        "its server did not answer when this was asked",
    ]


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        (Sampling(temperature=2.5), "temperature"),
        (Sampling(top_p=0.0), "top_p"),
        (Sampling(max_tokens=0), "max tokens"),
        (Sampling(seed=-1), "seed"),
    ],
)
def test_settings_outside_of_what_is_allowed_are_refused(
    conversations: Conversations, sampling: Sampling, told: str
) -> None:
    chat = conversations.begin(COLUMNS)
    with pytest.raises(ConfigError, match=told):
        conversations.ask(chat.id, "Which?", (), sampling)


@pytest.mark.parametrize("chat_id", ["", "../../etc/passwd", "000000000000"])
def test_an_address_that_is_no_conversation_is_not_found(conversations: Conversations, chat_id: str) -> None:
    with pytest.raises(NotFoundError):
        conversations.get(chat_id)


def test_images_are_looked_at_and_stored_or_refused(conversations: Conversations) -> None:
    png = io.BytesIO()
    Image.new("RGB", (30, 20)).save(png, "PNG")
    found = store_images([("a.png", png)], MIA, JobsSettings())
    assert [(image.width, image.height) for image in found] == [(30, 20)]
    for name, content in (("a.png", b"no image"), ("a.pkl", b"x"), ("a.png", b"\x80\x04\x95" + b"\x00" * 20)):
        with pytest.raises(DataError):
            store_images([(name, io.BytesIO(content))], MIA, JobsSettings())
    with pytest.raises(DataError, match="at most"):
        store_images([("a.png", png)] * (MAX_IMAGES + 1), MIA, JobsSettings())


def test_an_export_has_a_row_for_each_answer(conversations: Conversations) -> None:
    chat = _answered(conversations, "red <b>", "blue")
    made = make(export_of(chat), "jsonl")
    assert made.num_rows == 2
    assert b'"answer": "red <b>"' in made.data or b'"answer":"red <b>"' in made.data
    assert export_of(chat).stamp == export_of(conversations.get(chat.id)).stamp
    longer = Reply("blue indeed", "done", "stop", 2, 0.2)
    update(conversations.root, chat.id, lambda now: with_reply(now, 0, 1, longer))
    later = export_of(conversations.get(chat.id))
    assert later.stamp != export_of(chat).stamp, "a file made while an answer was written is not offered after it"
    page = make(export_of(chat), "html").data
    assert b"red &lt;b&gt;" in page
    assert b"red <b>" not in page
