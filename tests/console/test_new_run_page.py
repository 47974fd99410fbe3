"""The page New run in every home, without a browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from homes import NASTY, Home, build_home

from console.services.beginnings import templates
from console.services.drafts import Drafts
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.users import Users

SOUND = """name: sound
kind: rl
model: {path: somewhere, dtype: float32}
data: {train: shapes@train}
reward: [{type: exact, weight: 1.0}]
rollout: {prompts_per_step: 4}
"""


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return build_home("small", tmp_path_factory.mktemp("homes") / "small")


@pytest.fixture
def small(module_home: Home) -> Iterator[Home]:
    """A small home of this module's own, into which drafts may be written; it is MMRL_HOME meanwhile."""
    with module_home.active():
        yield module_home


def texts(test: Any) -> str:
    kinds = (test.text, test.caption, test.markdown, test.warning, test.error)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def one(value: str | list[str]) -> str:
    """A value of the address, which AppTest gives as it was set: by a test as text, by a page as a list."""
    return value if isinstance(value, str) else value[0]


def draft_in(home: Home, text: str) -> str:
    with Database.open() as database:
        return Drafts(Users(database).local()).create(text, origin="a test").id


def text_of(draft_id: str) -> str:
    with Database.open() as database:
        return Drafts(Users(database).local()).get(draft_id).text


def test_the_beginning_is_whole_in_every_home(any_home: Home, run_page: Callable[..., Any]) -> None:
    test = run_page("new_run", any_home)
    assert not test.exception
    assert "Try it with the tiny model" in texts(test)


@pytest.mark.parametrize("name", [each.name for each in templates()])
def test_every_template_becomes_a_draft_that_is_in_the_address(
    name: str, small: Home, run_page: Callable[..., Any]
) -> None:
    test = run_page("new_run", small, template=name)
    assert not test.exception
    draft_id = one(test.query_params["draft"])
    kind = next(each.kind for each in templates() if each.name == name)
    assert test.segmented_control(key=f"{draft_id}_kind").value == kind


def test_a_browser_that_still_holds_the_first_address_begins_no_second_draft(
    small: Home, run_page: Callable[..., Any]
) -> None:
    test = run_page("new_run", small, template="empty-sft")
    begun, drafts = one(test.query_params["draft"]), set((small.path / "drafts").iterdir())
    test.query_params.clear()
    test.query_params["template"] = "empty-sft"
    test.run()
    assert one(test.query_params["draft"]) == begun
    assert set((small.path / "drafts").iterdir()) == drafts


def test_a_name_that_the_queue_refuses_is_told_before_launching(small: Home, run_page: Callable[..., Any]) -> None:
    test = run_page("new_run", small, draft=draft_in(small, SOUND.replace("name: ", "name: " + "x" * 300)))
    assert "at most 200 are allowed" in texts(test)
    assert test.button(key="launch").disabled


def test_every_group_of_settings_can_be_opened_and_found(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    test = run_page("new_run", home, draft=draft_in(home, SOUND))
    test.text_input(key=f"{one(test.query_params['draft'])}_find").set_value("clip").run()
    assert not test.exception
    assert "Clip high" in {widget.label for widget in test.text_input}


def test_a_change_in_the_form_is_in_the_draft_at_once_and_a_default_leaves_no_trace(
    small: Home, run_page: Callable[..., Any]
) -> None:
    home = small
    draft_id = draft_in(home, SOUND)
    test = run_page("new_run", home, draft=draft_id)
    test.number_input(key=f"{draft_id}_train-steps").set_value(7).run()
    test.text_input(key=f"{draft_id}_optim-lr").set_value("3e-5").run()
    assert text_of(draft_id) == f"{SOUND}train:\n  steps: 7\noptim:\n  lr: 3e-05\n"
    test.number_input(key=f"{draft_id}_train-steps").set_value(500).run()
    test.text_input(key=f"{draft_id}_optim-lr").set_value("1e-6").run()
    assert text_of(draft_id) == SOUND


def test_a_value_that_is_no_number_is_kept_and_told_beside_its_field(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    draft_id = draft_in(home, SOUND)
    test = run_page("new_run", home, draft=draft_id)
    test.text_input(key=f"{draft_id}_optim-lr").set_value("fast").run()
    assert "lr: fast" in text_of(draft_id)
    assert "must be a number" in texts(test)
    assert test.button(key="launch").disabled
    assert not test.button(key="keep").disabled


def test_a_whole_number_that_is_none_is_shown_to_be_mended(small: Home, run_page: Callable[..., Any]) -> None:
    draft_id = draft_in(small, SOUND + "train: {steps: 7}\n")
    test = run_page("new_run", small, draft=draft_id)
    assert test.number_input(key=f"{draft_id}_train-steps").value == 7
    test.text_area(key=f"{draft_id}_yaml").set_value(SOUND + "train: {steps: many}\n").run()
    assert not test.exception
    assert test.text_input(key=f"{draft_id}_train-steps-typed").value == "many"
    test.text_input(key=f"{draft_id}_train-steps-typed").set_value("9").run()
    assert not test.exception
    assert test.number_input(key=f"{draft_id}_train-steps").value == 9


def test_another_algorithm_brings_its_own_words_and_fields(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    draft_id = draft_in(home, SOUND)
    test = run_page("new_run", home, draft=draft_id)
    test.selectbox(key=f"{draft_id}_algorithm-type").set_value("dapo").run()
    assert "type: dapo" in text_of(draft_id)
    assert "Decoupled clip" in texts(test)
    assert test.number_input(key=f"{draft_id}_algorithm-group_size").value == 16


def test_rewards_are_added_weighed_and_removed(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    draft_id = draft_in(home, SOUND)
    test = run_page("new_run", home, draft=draft_id)
    test.selectbox(key=f"{draft_id}_reward-new").set_value("length").run()
    test.text_input(key=f"{draft_id}_reward-1-weight").set_value("0.5").run()
    with Database.open() as database:
        value = Drafts(Users(database).local()).get(draft_id).value("reward")
    assert [(each["type"], each["weight"]) for each in value] == [("exact", 1.0), ("length", 0.5)]
    test.button(key=f"{draft_id}_reward-0-remove").click().run()
    test.button(key=f"{draft_id}_reward-0-remove").click().run()
    assert "reward" not in text_of(draft_id)
    assert not test.exception


def test_several_data_sets_are_a_mix_with_weights(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    test = run_page("new_run", home, data="shapes@train,shapes@test")
    draft_id = one(test.query_params["draft"])
    test.number_input(key=f"{draft_id}_weight-0-shapes@train").set_value(3.0).run()
    labels = [widget.label for widget in test.number_input if widget.label.startswith("Weight of")]
    assert ["75%" in labels[0], "25%" in labels[1]] == [True, True]
    with Database.open() as database:
        value = Drafts(Users(database).local()).get(draft_id).value("data.train")
    assert [dict(each) for each in value] == [
        {"name": "shapes@train", "weight": 3.0},
        {"name": "shapes@test", "weight": 1.0},
    ]


def test_launching_submits_one_job_and_a_member_may_not_launch_code(
    fresh_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = fresh_home("empty")
    with Database.open() as database:
        users = Users(database)
        users.add("Boss", role="admin")
        users.set_role(users.local().id, "member")
        before = len(Jobs(database, actor=users.local()).list(limit=None))
    code = SOUND.replace("type: exact", "type: function, path: mine.py")
    test = run_page("new_run", home, draft=draft_in(home, code))
    test.button(key="launch").click().run()
    assert "may not submit a config that runs code of its own" in texts(test)
    draft_id = draft_in(home, SOUND)
    test = run_page("new_run", home, draft=draft_id)
    test.button(key="launch").click().run()
    assert not test.exception
    with Database.open() as database:
        jobs = Jobs(database).list(limit=None)
        assert len(jobs) == before + 1
        assert (jobs[0].name, jobs[0].state) == ("sound", "queued")
        assert Drafts(Users(database).local()).get(draft_id).job_id == jobs[0].id


def test_a_past_run_and_a_checkpoint_are_beginnings(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    done = home.jobs["succeeded"]
    clone = run_page("new_run", home, **{"from": done})
    assert not clone.exception
    assert "begun with the run succeeded" in texts(clone)
    text = text_of(one(clone.query_params["draft"]))
    assert len(text.splitlines()) < 40, "defaults are left out"
    begun = run_page("new_run", home, checkpoint=f"{done}@last")
    assert not begun.exception
    draft_id = one(begun.query_params["draft"])
    assert "checkpoints/step-000100/model" in text_of(draft_id)
    begun.toggle(key=f"{draft_id}_going_on").set_value(True).run()
    assert "--from" in begun.code[0].value


def test_a_beginning_that_is_not_there_is_told_and_the_others_stay(
    fresh_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = fresh_home("broken")
    for query in ({"from": "nowhere"}, {"checkpoint": f"{home.jobs['no-folder']}@last"}, {"template": "none"}):
        test = run_page("new_run", home, **query)
        assert not test.exception
        assert "This cannot be a beginning" in texts(test)
        assert "Try it with the tiny model" in texts(test)
    assert "This draft is gone" in texts(run_page("new_run", home, draft="0123456789ab"))


def test_x06_a_draft_of_nasty_text_is_shown_as_it_stands(small: Home, run_page: Callable[..., Any]) -> None:
    home = small
    text = SOUND.replace("name: sound", f'name: "{NASTY}"').replace("shapes@train", f'"{NASTY}"')
    draft_id = draft_in(home, text)
    test = run_page("new_run", home, draft=draft_id)
    assert not test.exception
    listed = run_page("new_run", home)
    for page in (test, listed):
        assert not [element for element in (*page.markdown, *page.caption) if NASTY in str(element.value)]


def test_the_page_takes_at_most_a_second_on_the_large_home(
    shared_home: Callable[[str], Home], run_page: Callable[..., Any]
) -> None:
    home = shared_home("large")
    with home.active():
        draft_id = draft_in(home, SOUND)
    for query in ({}, {"draft": draft_id}):
        test = run_page("new_run", home, **query)
        begun = time.process_time()
        test.run()
        assert time.process_time() - begun < 1.0, query
