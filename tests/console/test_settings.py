"""The page Settings: tokens shown once, people for admins, and facts without secrets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from homes import Home

from mmrl.jobs.database import Database
from mmrl.jobs.users import TOKEN_PREFIX, Users

Page = Callable[..., Any]


def said(test: Any) -> str:
    kinds = (test.subheader, test.text, test.markdown, test.caption, test.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def local_key(key: str) -> str:
    with Database.open() as database:
        return f"{key}_{Users(database).local().id}"


def test_a_token_is_made_shown_once_and_revoked(fresh_home: Callable[[str], Home], run_page: Page) -> None:
    test = run_page("settings", fresh_home("empty"))
    test.text_input(key=local_key("token_name")).set_value("laptop")
    test.button(key=local_key("make_token")).click().run()
    text = next(code.value for code in test.code if code.value.startswith(TOKEN_PREFIX))
    with Database.open() as database:
        users = Users(database)
        assert users.authenticate(text).scopes == {"read"}
        (token,) = users.tokens(users.local().id)
    test.button(key=local_key("token_done")).click().run()
    assert text not in said(test)
    test.button(key=f"revoke_{token.id}").click().run()
    test.button(key="confirm_revoke").click().run()
    assert "No tokens yet." in said(test)
    with Database.open() as database:
        assert Users(database).token_id(text) is None


def test_a_token_without_a_name_is_refused_where_it_was_asked_for(
    fresh_home: Callable[[str], Home], run_page: Page
) -> None:
    test = run_page("settings", fresh_home("empty"))
    test.button(key=local_key("make_token")).click().run()
    assert "a token needs a name" in said(test)
    assert not any(code.value.startswith(TOKEN_PREFIX) for code in test.code)


def test_an_admin_adds_people_changes_roles_and_disables(fresh_home: Callable[[str], Home], run_page: Page) -> None:
    home = fresh_home("small")
    test = run_page("settings", home, part="People")
    test.text_input(key="person_name").set_value("Ada")
    test.text_input(key="person_email").set_value("ada@example.org")
    test.selectbox(key="person_role").set_value("member")
    test.button(key="add_person_button").click().run()
    viewer = home.users["viewer"]
    test.selectbox(key=f"role_{viewer}_viewer").set_value("member").run()
    test.button(key=f"enable_{home.users['member']}").click().run()
    with Database.open() as database:
        found = {user.name: (user.role, user.is_disabled) for user in Users(database).all()}
    assert found["Ada"] == ("member", False)
    assert found["Vic Viewer"] == ("member", False)
    assert found["Mia Member"] == ("member", True)
    assert test.selectbox(key=f"role_{viewer}_member").value == "member"


def test_no_secret_of_the_environment_is_told(
    shared_home: Callable[[str], Home], run_page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "fake-wandb-key")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:fake-password@mlflow.example/x")
    test = run_page("settings", shared_home("small"), part="Trackers")
    assert "fake-" not in said(test)
    assert "https://…@mlflow.example/x" in said(test)
    assert "online" in said(test).splitlines()


def test_the_installation_is_told(shared_home: Callable[[str], Home], run_page: Page) -> None:
    home = shared_home("large")
    test = run_page("settings", home, part="Installation")
    figures = {metric.label: metric.value for metric in test.metric}
    assert figures["Data sets"] == "5.0 GB"
    assert figures["Checkpoints"] == "3.5 TB"
    assert f"mmrl's home is {home.path}" in said(test)
