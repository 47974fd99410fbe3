"""Drafts of runs: nothing typed is lost, and nobody changes another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.services.draft_text import UNSET, with_changes, with_value
from console.services.drafts import MAX_CHARACTERS, Drafts
from mmrl.errors import ConfigError, ConflictError, NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.records import User
from mmrl.jobs.users import Users

TEXT = """# how it began
name: a   # for people
optim:
  lr: 1.0e-6  # slow
reward:
- {type: exact, weight: 1.0}
"""


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[User, User]:
    """Two members."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    with Database.open() as database:
        users = Users(database)
        return users.add("Mia", role="member"), users.add("Max", role="member")


def test_a_changed_value_leaves_the_rest_of_the_text_and_its_comments() -> None:
    assert with_value(TEXT, "optim.lr", 5e-5) == TEXT.replace("1.0e-6 ", "5e-05  ")
    assert with_value(TEXT, "reward.0.weight", 2.0) == TEXT.replace("weight: 1.0", "weight: 2.0")


def test_a_new_group_is_added_and_an_empty_one_goes() -> None:
    added = with_value(TEXT, "train.steps", 5)
    assert added == f"{TEXT}train:\n  steps: 5\n"
    assert with_value(added, "train.steps", UNSET) == TEXT
    assert with_value(TEXT, "train.steps", UNSET) == TEXT


def test_a_text_made_of_an_earlier_one_takes_over_what_changed_meanwhile() -> None:
    meanwhile = with_value(with_value(TEXT, "optim.lr", 5e-5), "train.steps", 9)
    mine = TEXT.replace("name: a ", "name: b ")
    assert with_changes(mine, TEXT, meanwhile) == meanwhile.replace("name: a ", "name: b ")
    gone = with_value(TEXT, "optim", UNSET)
    assert with_changes(mine, TEXT, gone) == with_value(mine, "optim", UNSET)
    own = TEXT.replace("1.0e-6", "2.0e-6")
    assert with_changes(own, TEXT, meanwhile) == with_value(own, "train.steps", 9)
    assert with_changes("name: [half", TEXT, meanwhile) == "name: [half"
    assert with_changes("optim: 3\n", TEXT, meanwhile) == "optim: 3\ntrain:\n  steps: 9\n"


def test_text_that_yaml_would_misread_stays_text() -> None:
    from ruamel.yaml import YAML

    for value in ("no", "0123", "1e-6", "", "a: b", "# x", "<img src=x>"):
        text = with_value("name: a\n", "name", value)
        assert YAML(typ="safe", pure=True).load(text) == {"name": value}


def test_a_key_that_leads_into_a_value_is_refused_and_so_is_text_with_an_error() -> None:
    with pytest.raises(ConfigError, match="leads into a value"):
        with_value(TEXT, "name.first", 1)
    with pytest.raises(ConfigError, match="has an error"):
        with_value("name: [a", "name", "b")


def test_a_draft_is_there_again_after_a_restart_with_text_that_is_wrong_too(people: tuple[User, User]) -> None:
    draft = Drafts(people[0]).create(TEXT, origin="a test")
    Drafts(people[0]).set_text(draft.id, "name: [half")
    again = Drafts(people[0]).get(draft.id)
    assert (again.text, again.data, again.origin) == ("name: [half", None, "a test")
    assert [each.id for each in Drafts(people[0]).all()] == [draft.id]


def test_a_draft_of_somebody_else_is_not_there(people: tuple[User, User]) -> None:
    draft = Drafts(people[0]).create(TEXT, origin="a test")
    other = Drafts(people[1])
    assert other.all() == []
    for attempt in (lambda: other.get(draft.id), lambda: other.set_text(draft.id, ""), lambda: other.copy(draft.id)):
        with pytest.raises(NotFoundError):
            attempt()
    other.remove(draft.id)
    assert Drafts(people[0]).get(draft.id).text == TEXT
    with pytest.raises(NotFoundError):
        Drafts(people[0]).get("../jobs")


def test_a_launched_draft_stays_as_it_is_and_its_copy_has_a_key_of_its_own(people: tuple[User, User]) -> None:
    drafts = Drafts(people[0])
    draft = drafts.create(TEXT, origin="a test")
    drafts.launched(draft.id, "job")
    assert drafts.all() == []
    with pytest.raises(ConflictError, match="copy it to change it"):
        drafts.set_value(draft.id, "seed", 1)
    copy = drafts.copy(draft.id)
    assert (copy.text, copy.job_id) == (TEXT, None)
    assert copy.launch_key != draft.launch_key


def test_the_stamp_follows_what_decides_the_run(people: tuple[User, User]) -> None:
    drafts = Drafts(people[0])
    draft = drafts.create(TEXT, origin="a test")
    assert drafts.change(draft.id, priority=3).stamp == draft.stamp
    assert drafts.set_value(draft.id, "seed", 1).stamp != draft.stamp
    assert drafts.set_text(draft.id, TEXT).stamp == draft.stamp
    assert drafts.change(draft.id, resume_checkpoint="/x").stamp != draft.stamp


def test_a_draft_that_would_be_too_long_stays_as_it_was(people: tuple[User, User]) -> None:
    drafts = Drafts(people[0])
    draft = drafts.create(TEXT, origin="a test")
    drafts.set_text(draft.id, "#" * MAX_CHARACTERS)
    drafts.set_text(draft.id, TEXT)
    for change in (
        lambda: drafts.set_text(draft.id, "#" * (MAX_CHARACTERS + 1)),
        lambda: drafts.set_value(draft.id, "name", "x" * MAX_CHARACTERS),
        lambda: drafts.create("#" * (MAX_CHARACTERS + 1), origin="a test"),
    ):
        with pytest.raises(ConfigError, match="it may have 200,000"):
            change()
    assert [each.text for each in drafts.all()] == [TEXT]
