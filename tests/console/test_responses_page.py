"""The page Responses without a browser: in every home, by its address, and with texts that must stay texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from home_runs import add_boxes_run
from homes import KINDS, NASTY, Home

from console.components.response_cards import tokens_html
from console.components.reward_why import parts_html
from console.services.token_words import TokenCell
from mmrl.jobs.database import Database
from mmrl.types import RewardPart

Homes = Callable[[str], Home]
RunPage = Callable[..., Any]


def _texts(test: Any) -> str:
    return "\n".join(element.value for kind in ("text", "markdown", "caption") for element in test.get(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_whole_for_every_run_of_every_home(shared_home: Homes, run_page: RunPage, kind: str) -> None:
    home = shared_home(kind)
    for name in list(home.jobs)[:12] or ["none"]:
        test = run_page("responses", home, run=home.jobs.get(name, name))
        assert not test.exception, name
        assert test.title[0].value == "Responses"


def test_a_group_is_read_from_the_best_response_to_the_worst(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("responses", home, run=home.jobs["running"], step="30", group="1")
    shown = [text.value for text in test.text]
    assert shown[:2] == ["Which colour is shape 1?", "green"]
    assert shown[2:] == [r"The shape is \boxed{green}", *[r"The shape is \boxed{grey}"] * 3]
    rewards = [each.value for each in test.markdown if "reward" in each.value]
    assert rewards == ["**1.** reward **1.200**", *[f"**{place}.** reward **0.2000**" for place in (2, 3, 4)]]
    assert "advantage \\+0\\.750" in _texts(test)


def test_what_is_asked_for_stays_in_the_address(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("responses", home, run=home.jobs["running"], step="60", find="shape 1")
    assert "1 of 2 groups" in _texts(test)
    test.text_input(key="responses-find").set_value("no such text").run()
    assert test.query_params["find"] == "no such text"
    assert "No group fits" in _texts(test)
    test.text_input(key="responses-find").set_value("").run()
    test.button(key="responses-later").click().run()
    assert test.query_params["group"] == "1"
    assert test.selectbox(key="responses-group").value == 1
    assert "find" not in test.query_params


def test_an_address_that_means_nothing_shows_the_last_step(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    test = run_page("responses", home, run=home.jobs["running"], step="7", split="dream", group="x", tokens="colour")
    assert not test.exception
    assert test.select_slider(key="responses-step").value == 60
    assert "No run is named" in _texts(run_page("responses", home))


@pytest.mark.parametrize("steps", ["one", "all"])
def test_what_the_address_asks_for_and_is_not_there_is_told(shared_home: Homes, run_page: RunPage, steps: str) -> None:
    words = {"part": "exat", "low": "0", "high": "lots", "only": "best"}
    test = run_page("responses", shared_home("small"), run=shared_home("small").jobs["running"], steps=steps, **words)
    assert not test.exception
    told = next(text.value for text in test.text if text.value.startswith("The address asks"))
    assert "groups that are 'best', which counts for nothing: choose among truncated, no-spread" in told
    assert "high 'lots', which is no number" in told
    assert "the reward 'exat', which is not known here" in told
    assert "choose among total, exact" in told
    assert "No group fits" in _texts(test)
    test.button(key="responses-clear").click().run()
    assert "The address asks" not in _texts(test)
    assert "No group fits" not in _texts(test)


def test_the_last_page_of_all_steps_says_that_the_oldest_step_is_reached(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    asked = {"run": home.jobs["running"], "steps": "all", "find": "shape 1"}
    test = run_page("responses", home, **asked, after="10-1")
    assert "No more groups fit" in _texts(test)
    assert "All steps were looked through" not in _texts(test)
    assert any(button.key == "all-steps-newest" for button in test.button)


def test_all_steps_are_looked_through_and_lead_to_the_step_of_each_group(
    shared_home: Homes, run_page: RunPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.services.run_search.ON_A_PAGE", 2)
    home = shared_home("small")
    test = run_page("responses", home, run=home.jobs["running"], step="60", find="shape 1", steps="all")
    assert not test.exception
    assert "2 groups found in steps 60 to 50; earlier ones were not looked through yet." in _texts(test)
    links = [each.proto.label for each in test.get("page_link") if each.proto.label.startswith("step")]
    assert links == ["step 60, group 1", "step 50, group 1"]
    assert "4 responses, 2 of them here" in _texts(test).replace("\\", "")
    test.button(key="all-steps-older").click().run()
    assert "2 groups found in steps 50 to 30" in _texts(test)
    test.text_input(key="responses-find").set_value("no such text").run()
    assert "after" not in test.query_params
    assert "No group fits" in _texts(test)
    assert "Parts disagree where" not in _texts(test)
    test.selectbox(key="responses-only").set_value("disagree").run()
    assert "Parts disagree where" in _texts(test)
    test.button_group(key="responses-steps").set_value("one").run()
    assert test.select_slider(key="responses-step").value == 60


def test_x06_text_of_models_and_rewards_is_inert_in_every_view() -> None:
    """Also a token that is half of a tag, and letters that turn the line around."""
    shaded = tokens_html([TokenCell(NASTY, -1.0, 0.2, True), TokenCell("\u202e\x1b[2J\n", None, 0.0, False)])
    listed = parts_html([RewardPart(NASTY, 0.5, 1.0, extracted=NASTY, explanation=NASTY, error=NASTY)])
    for shown in (shaded, listed):
        assert "<img" not in shown
        assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert "\u202e" not in shaded
    assert "\x1b" not in shaded
    assert "not computed" in shaded


def test_a_gallery_leads_to_a_group_and_a_prompt_is_followed_over_all_steps(
    shared_home: Homes, run_page: RunPage
) -> None:
    home = shared_home("small")
    test = run_page("responses", home, run=home.jobs["running"], view="gallery", step="60")
    assert not test.exception
    assert "Which colour is shape 1?" in _texts(test).replace("\\", "")
    test.button(key="open-1").click().run()
    assert "view" not in test.query_params
    assert test.selectbox(key="responses-group").value == 1
    test.button_group(key="responses-view").set_value("steps").run()
    assert not test.exception
    shown = [each.value for each in test.markdown if each.value.startswith("**Step")]
    assert shown == [f"**Step {step}**" for step in (60, 50, 40, 30, 20, 10)]
    assert "the line is their mean" in _texts(test)
    test.button(key="open-step-10").click().run()
    assert (test.query_params["step"], test.select_slider(key="responses-step").value) == ("10", 10)


def test_why_a_response_got_its_reward_stands_beside_it(shared_home: Homes, run_page: RunPage) -> None:
    home = shared_home("small")
    shown = _texts(run_page("responses", home, run=home.jobs["running"], step="30", group="1")).replace("\\", "")
    assert "**exact** × 1: 1 if the extracted answer equals the reference as text, else 0." in shown
    assert "The **advantage** (algorithm grpo) tells how a response stands to the others of its group" in shown
    assert "Reward: **1 × 1 + 1 × 0.2000 = 1.200**" in shown
    assert "Advantage: **1.200 − 0.4500 = +0.7500** Reward less the group's mean." in shown
    assert "The group's rewards: mean 0.4500, sample standard deviation 0.5000, of 4 rewards." in shown
    assert "Not computed here: entropy, ratio, kl." in shown


def test_a_long_text_is_cut_and_shown_whole_when_asked_for(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("small")
    for file in home.path.rglob("train-000060.parquet"):
        table = pq.read_table(file)
        texts = pa.array(["long word " * 100_000, NASTY, "\u202e\x1b[2J", "שלום, עולם"] * 2)
        pq.write_table(table.set_column(table.schema.get_field_index("response"), "response", texts), file)
    test = run_page("responses", home, run=home.jobs["running"], step="60", group="0")
    shown = [text.value for text in test.text]
    assert max(map(len, shown)) < 6_100
    assert NASTY in shown
    assert "\\u202e\\x1b[2J" in shown
    assert "שלום, עולם" in shown
    (whole,) = [button for button in test.button if "1,000,000 characters" in button.label]
    whole.click().run()
    assert any(len(code.value) >= 1_000_000 - 1 for code in test.code)


def test_boxes_of_reference_and_response_are_drawn_and_told(fresh_home: Homes, run_page: RunPage) -> None:
    home = fresh_home("empty")
    with Database.open() as database:
        add_boxes_run(home, database)
    test = run_page("responses", home, run=home.jobs["boxes"], group="0")
    assert not test.exception
    told = [each.value for each in test.caption if "the reference," in each.value]
    assert told == [
        "Green, solid: the reference, [10, 12, 60, 60]. Orange, dashed and numbered: the response, [12, 12, 62, 60]. "
        "In pixels."
    ]
    test.button_group(key="responses-boxes").set_value(3).run()
    assert test.query_params["boxes"] == "3"
    assert any("the response, none" in each.value for each in test.caption)
    test.button_group(key="responses-image").set_value("stored").run()
    assert not any("the reference," in each.value for each in test.caption)
