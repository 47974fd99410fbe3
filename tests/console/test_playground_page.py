"""The page Playground without a browser: in every home, by its address, read by others, and kept."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from homes import KINDS, NASTY, Home

from console import context
from console.services.conversations import Column, Conversations, Reply, Sampling, update, with_reply
from mmrl.data.dataset import load_dataset
from mmrl.data.registry import DatasetRegistry
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Marks
from mmrl.jobs.users import Users
from mmrl.serving.endpoint import Endpoint

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]


def _texts(test: Any) -> str:
    return "\n".join(element.value for kind in ("text", "markdown", "caption") for element in test.get(kind))


def _chat(home: Home, *answers: tuple[str, str], owner: str | None = None) -> str:
    """A conversation with steps 50 and 100 of a run, each question answered by both."""
    with Database.open() as database:
        users = Users(database)
        user = users.get(owner) if owner else users.local()
        conversations = Conversations(user, database.settings)
        run = home.jobs["succeeded"]
        chat = conversations.begin(tuple(Column(run, step, f"/x/{step}", f"run@{step}") for step in (50, 100)))
        for number, replies in enumerate(answers):
            conversations.ask(chat.id, f"Which colour? {NASTY}", (), Sampling(seed=number))
            for column, text in enumerate(replies):
                reply = Reply(text, "done", "stop", 3, 0.5)
                update(
                    conversations.root,
                    chat.id,
                    lambda now, n=number, c=column, r=reply: with_reply(now, n, c, r),  # type: ignore[misc]
                )
    return chat.id


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_whole_in_every_home(shared_home: Homes, run_page: RunPage, kind: str) -> None:
    home = shared_home(kind)
    run = next(iter(home.jobs.values()), "none")
    test = run_page("playground", home, run=run, steps="7,x")
    assert not test.exception
    assert test.title[0].value == "Playground"


def test_checkpoints_are_chosen_by_the_address_and_wait_to_be_started(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("playground", home, run=home.jobs["succeeded"], steps="100")
    assert test.multiselect(key="chat-steps").value == [100]
    assert test.button(key="start-0").label.startswith("Start: ")
    assert test.chat_input(key="question").disabled
    test.number_input(key="chat-temperature").set_value(0.0).run()
    assert test.query_params["temperature"] == "0"
    assert "No checkpoint" not in _texts(test)


def test_no_number_in_the_address_breaks_the_page(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("playground", home, run=home.jobs["succeeded"], steps="100")
    for word in ("inf", "nan", "1e30", "-5"):
        test.query_params.update(dict.fromkeys(("temperature", "top_p", "max_tokens", "seed"), word))
        test.run()
        assert not test.exception, word
        assert 0 <= test.number_input(key="chat-temperature").value <= 2


def test_a_long_answer_is_there_whole_when_asked_for(fresh_home: Homes, run_page: RunPage) -> None:
    long = "ﷺ " + "word " * 5000 + "the end"
    home = fresh_home("small")
    test = run_page("playground", home, chat=_chat(home, (long, "short")))
    assert not any("the end" in text.value for text in test.text)
    next(button for button in test.button if button.label.startswith("Show all 25,")).click().run()
    assert any(code.value.endswith("the end") for code in test.code)
    assert any("unicode-bidi:plaintext" in str(each.proto) for each in test.get("html")), "each line goes its own way"


def test_an_address_brings_a_conversation_back_and_its_texts_are_inert(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    chat = _chat(home, ("red", NASTY), ("\u202eblue", ""))
    test = run_page("playground", home, chat=chat)
    assert not test.exception
    shown = [text.value for text in test.text]
    assert shown[:3] == [f"Which colour? {NASTY}", "red", NASTY]
    assert r"\u202eblue" in shown
    assert "(empty)" in shown
    assert "ended by itself · 3 tokens" in _texts(test)


def test_an_exchange_is_kept_once_as_a_row_and_a_preference_as_a_mark(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    chat = _chat(home, ("red", "green"))
    test = run_page("playground", home, chat=chat)
    for told in ("chat\\-samples has 1 rows now", "It is in there already"):
        test.button(key="keep-it-0").click().run()
        assert not test.exception
        assert told.replace("\\", "") in _texts(test)
    rows = list(load_dataset("chat-samples@train"))
    assert [row.answer for row in rows] == ["red"]
    test.button(key="mark-0-b").click().run()
    assert not test.exception
    with Database.open() as database:
        mark = Marks(database, Users(database).local()).of_source(f"chat:{chat}")[0]
    assert (mark.choice, mark.shown) == ("b", ())
    test.button(key="chat-marks-make").click().run()
    pair = next(iter(load_dataset("chat-marks@train")))
    assert "green" in str(pair.meta["chosen"])
    assert "red" in str(pair.meta["rejected"])
    links = [link.proto.page + link.proto.query_string for link in test.get("page_link")]
    assert any(f"data=chat-marks%3A{DatasetRegistry().find('chat-marks').version}" in link for link in links)


def test_a_mark_of_a_conversation_counts_on_label_and_reaches_the_data_set_made_there(
    fresh_home: Homes, run_page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fresh_home("small")
    chat = _chat(home, ("red", "green"))
    run_page("playground", home, chat=chat).button(key="mark-0-b").click().run()
    query = {"from": "chat", "chat": chat, "num": "all"}
    test = run_page("label", home, **query)
    assert not test.exception
    assert "All judged" in _texts(test)
    test.button(key="label-reveal").click().run()
    test.button(key="FormSubmitter:label-data-Make the data set").click().run()
    (name,) = [name for name in DatasetRegistry().names() if name.startswith("marks-chat-")]
    (row,) = load_dataset(f"{name}@train")
    assert [row.meta[side][0]["content"][0]["text"] for side in ("chosen", "rejected")] == ["green", "red"]
    with Database.open() as database:
        mia = Users(database).get(home.users["member"])
    monkeypatch.setattr("console.context.viewer", lambda: mia)
    test = run_page("label", home, **query)
    assert "0 of 1 judged" in [each.proto.text for each in test.get("progress")], "others judge the same, blind"


def test_who_has_not_judged_on_label_makes_a_data_set_of_their_own_marks_alone(
    fresh_home: Homes, run_page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fresh_home("small")
    chat = _chat(home, ("red", "green"))
    run_page("playground", home, chat=chat).button(key="mark-0-b").click().run()
    with Database.open() as database:
        mia = Users(database).get(home.users["member"])
    monkeypatch.setattr("console.context.viewer", lambda: mia)
    test = run_page("playground", home, chat=chat)
    assert "Others' marks (1) are left out" in _texts(test)
    assert not [button for button in test.button if button.key == "chat-marks-make"]
    test = run_page("rewards", home, view="people")
    assert "Others' marks (1) are left out" in _texts(test)
    assert not test.table


def test_what_was_not_asked_alike_is_not_judged(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    chat = _chat(home, ("red", "green"), ("one", "two"))
    test = run_page("playground", home, chat=chat)
    assert "were not asked the same" in _texts(test)
    assert not [button for button in test.button if button.key == "mark-1-a"]


def test_a_conversation_of_somebody_else_is_read_and_not_gone_on_with(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    chat = _chat(home, ("red", "green"), owner=home.users["member"])
    with Database.open() as database:
        users = Users(database)
        viewer = users.get(home.users["viewer"])
        from mmrl.jobs.errors import ForbiddenError

        conversations = Conversations(viewer, database.settings)
        assert conversations.get(chat).turns[0].replies[0].text == "red"
        with pytest.raises(ForbiddenError):
            conversations.ask(chat, "And now?", (), Sampling())
        with pytest.raises(ForbiddenError):
            conversations.begin(conversations.get(chat).columns)


def test_an_answer_that_ended_takes_the_place_of_the_one_that_was_written(fresh_home: Homes, run_page: RunPage) -> None:
    """Elsewhere on the page it would stand beside it until the whole page is drawn, and what is below would move."""
    home = fresh_home("small")
    with Database.open() as database:
        conversations = Conversations(Users(database).local(), database.settings)
        run = home.jobs["succeeded"]
        chat = conversations.begin(tuple(Column(run, step, f"/x/{step}", f"run@{step}") for step in (50, 100)))
        asked = conversations.ask(chat.id, "Which colour?", (), Sampling())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}", "m", 1, "secret")
        context.answers().start(asked, 0, [endpoint, endpoint])
        test = run_page("playground", home, chat=chat.id)
        assert "waits for its first word" in _texts(test)
        writing = {key: _places(test.main, key) for key in ("turn-0", "reply-0-0", "reply-0-1", "server-0")}
        test.button(key="stop-answers").click().run()
    assert "stopped" in _texts(test)
    assert all(len(places) == 1 for places in writing.values())
    assert {key: _places(test.main, key) for key in writing} == writing


def _places(block: Any, key: str, place: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where containers of a key stand in the page, from the outermost one on."""
    found = [place] if str(getattr(block.proto, "id", "")).endswith(f"-{key}") else []
    for number, child in getattr(block, "children", {}).items():
        if hasattr(child, "children"):
            found += _places(child, key, (*place, number))
    return found
