"""The page Cluster: machines, pools and the queue; draining and limits by admins alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from homes import Home

from console.services.machines import cluster_view
from mmrl.errors import ConfigError
from mmrl.jobs import tables
from mmrl.jobs.clock import NOW
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.operating import drain, set_capacity
from mmrl.jobs.pools import Fleet
from mmrl.jobs.users import Users

Page = Callable[..., Any]


def said(test: Any) -> str:
    kinds = (test.subheader, test.text, test.markdown, test.caption, test.code)
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def test_a_machine_is_told_with_what_it_holds(shared_home: Callable[[str], Home], run_page: Page) -> None:
    test = run_page("cluster", shared_home("small"))
    told = said(test)
    assert "3 of 16 CPU slots in use · 0 of 2 GPUs in use" in told
    assert "GPU\\-1" in told
    held = {link.label for link in test.get("page_link")}
    assert {"running", "stopping", "starting"} <= held
    pools = test.dataframe[0].value
    assert list(pools["Pool"]) == ["default", "elsewhere"]
    assert list(pools["Waiting"]) == [2, 1]


def test_an_admin_drains_a_worker_once_they_have_said_so_twice(
    fresh_home: Callable[[str], Home], run_page: Page
) -> None:
    home = fresh_home("small")
    test = run_page("cluster", home)
    with Database.open() as database:
        (worker,) = Fleet(database).workers()
        test.button(key=f"drain_{worker.id}").click().run()
        assert Fleet(database).workers()[0].state == "active"
        assert worker.id in said(test)
        test.button(key="confirm_drain").click().run()
        assert Fleet(database).workers()[0].state == "draining"


def test_an_admin_limits_a_pool_and_takes_the_limit_away(fresh_home: Callable[[str], Home], run_page: Page) -> None:
    home = fresh_home("small")
    test = run_page("cluster", home)
    test.button(key="limit").click().run()
    test.number_input(key="capacity_default").set_value(2).run()
    test.button(key="confirm_capacity").click().run()
    with Database.open() as database:
        assert {pool.name: pool.capacity for pool in Fleet(database).pools()}["default"] == 2
    assert home.kind == "small"


def test_others_may_look_and_change_nothing(fresh_home: Callable[[str], Home]) -> None:
    home = fresh_home("small")
    with Database.open() as database:
        fleet, users = Fleet(database), Users(database)
        worker = fleet.workers()[0].id
        for role in ("viewer", "member"):
            user = users.get(home.users[role])
            with pytest.raises(ForbiddenError, match="it takes the role admin"):
                drain(fleet, user, worker)
            with pytest.raises(ForbiddenError, match="it takes the role admin"):
                set_capacity(fleet, user, "default", 1)
        with pytest.raises(ConfigError, match="use 0 or more"):
            set_capacity(fleet, users.local(), "default", -1)
        assert fleet.workers()[0].state == "active"


def test_an_empty_home_is_told_how_to_start_a_worker(shared_home: Callable[[str], Home], run_page: Page) -> None:
    assert "mmrl worker start" in said(run_page("cluster", shared_home("empty")))


def test_a_worker_that_was_killed_is_shown_as_silent_for_a_day(fresh_home: Callable[[str], Home]) -> None:
    fresh_home("small")
    with Database.open() as database, database.transaction() as connection:
        connection.execute(sa.update(tables.workers).values(heartbeat_at=NOW - 86_400.0 * 0.5))
    with Database.open() as database:
        database.settings = database.settings.model_copy(update={"lease_s": 60.0})
        (machine,) = cluster_view(Jobs(database), Fleet(database)).machines
    assert machine.condition == "silent"
