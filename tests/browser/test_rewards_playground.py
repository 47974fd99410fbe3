"""Rewards and Playground in a real browser: how they look, and a chat with real vLLM that begins on the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from homes import Home
from looking import settle
from PIL import Image
from playwright.sync_api import Page, expect

from console.services.conversations import Column, Conversations, Reply, Sampling, update, with_reply
from mmrl.data.images import ImageStore
from mmrl.jobs.database import Database
from mmrl.jobs.users import Users

Consoles = Callable[..., Any]
_SERVER_MS = 300_000


def _chat(home: Home) -> str:
    """A question with an image, answered by two checkpoints."""
    with home.active(), Database.open() as database:
        conversations = Conversations(Users(database).local(), database.settings)
        run = home.jobs["succeeded"]
        chat = conversations.begin(tuple(Column(run, step, f"/x/{step}", f"shapes@{step}") for step in (50, 100)))
        image = ImageStore().add(Image.new("RGB", (112, 84), (40, 160, 60)))
        conversations.ask(chat.id, "Which colour is the shape?", (image,), Sampling(seed=1))
        replies = (
            Reply("I think it is red.\n\nThe answer is \\boxed{red}", "done", "stop", 21, 0.8),
            Reply("The shape is filled with one colour.\n\nThe answer is \\boxed{green}", "done", "stop", 14, 0.5),
        )
        for column, reply in enumerate(replies):
            update(conversations.root, chat.id, lambda now, c=column, r=reply: with_reply(now, 0, c, r))  # type: ignore[misc]
    return chat.id


def test_rewards_and_playground_look_right_and_are_accessible(
    start_console: Consoles, open_page: Callable[..., Page], look_over: Callable[[Page, str], list[Path]]
) -> None:
    console, home = start_console("small")
    page = open_page(console, f"/rewards?view=rescore&run={home.jobs['running']}")
    page.locator("textarea").first.fill("- {type: format, pattern: '.*green.*'}")
    page.locator("textarea").first.blur()
    settle(page)
    page.get_by_role("button", name="Score them anew").click()
    expect(page.get_by_text("Responses that moved most")).to_be_visible()
    assert len(look_over(page, "rewards-rescore")) == 4
    page.goto("/rewards?name=iou")
    expect(page.get_by_role("heading", name="iou")).to_be_visible()
    assert len(look_over(page, "rewards")) == 4
    page.goto(f"/playground?chat={_chat(home)}")
    expect(page.get_by_text("I think it is red.")).to_be_visible()
    assert len(look_over(page, "playground")) == 4


@pytest.mark.slow
@pytest.mark.vllm
def test_a_checkpoint_is_started_asked_kept_and_stopped_from_the_page(
    start_console: Consoles, open_page: Callable[..., Page], tiny_model: Any
) -> None:
    """A reload in the middle loses nothing; neither address nor key of the server comes to the browser."""
    from mmrl.config.loading import build_config
    from mmrl.jobs.from_config import job_of
    from mmrl.jobs.jobs import Jobs
    from mmrl.serving.endpoint import ENDPOINT_FILE

    console, home = start_console("empty", "--worker")
    with home.active(), Database.open() as database:
        config = {"name": "tiny", "kind": "sft", "model": {"path": str(tiny_model())}, "data": {"train": "none"}}
        run = Jobs(database).submit(job_of(build_config(config, source="tests").config), as_draft=True).id
    frames: list[str] = []
    page = open_page(console, "/")
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: frames.append(str(data))))
    page.goto(f"/playground?run={run}&steps=0&max_tokens=200&temperature=1&seed=1")
    page.get_by_role("button", name="Start: tiny").click()
    question = page.get_by_placeholder("Ask the checkpoint")
    expect(question).to_be_enabled(timeout=_SERVER_MS)
    settle(page)
    question.fill("Tell me all")
    question.press("Enter")
    expect(page.locator(".st-key-question-0")).to_be_visible()
    page.reload()
    expect(page.get_by_text("tokens · ")).to_be_visible(timeout=_SERVER_MS)
    endpoint = next((home.path / "runs").glob(f"*/{ENDPOINT_FILE}")).read_text()
    key, port = (endpoint.partition(f'"{name}": "')[2].partition('"')[0] for name in ("key", "url"))
    assert len(key) > 30
    assert not [frame for frame in frames if key in frame or port.removeprefix("http://") in frame]
    page.get_by_role("button", name="Keep as a sample").click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_text("chat-samples has 1 rows now")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Stop: tiny").click()
    expect(page.get_by_role("button", name="Start again: tiny")).to_be_visible(timeout=_SERVER_MS)
