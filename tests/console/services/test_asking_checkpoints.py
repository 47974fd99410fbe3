"""Asking checkpoints the same prompts: what is offered, one job for each however often asked, and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_builders import SETTINGS, evaluated
from homes import Home

from console.services.asking_checkpoints import (
    Prompts,
    ask,
    asked,
    candidates,
    how_far,
    is_answered,
    new_prompts,
    runs_to_ask,
)
from console.services.serving import columns_of, start
from mmrl.config.loading import build_config
from mmrl.data.images import ImageStore
from mmrl.errors import ConfigError
from mmrl.evaluation.panels import PanelSettings, panel_of, save_panel
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job, User
from mmrl.jobs.states import JobState
from mmrl.jobs.users import Users
from mmrl.types import Message, Sample, TextPart


@pytest.fixture
def jobs(fresh_home: Callable[[str], Home]) -> Iterator[tuple[Jobs, Job]]:
    home = fresh_home("small")
    with Database.open() as database:
        found = Jobs(database)
        yield found, found.get(home.jobs["succeeded"])


def test_step_0_is_always_offered_and_checkpoints_come_by_their_numbers(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    offered = candidates(found, run)
    assert [each.step for each in offered] == [0, 50, 100]
    assert offered[0].path == run.config["model"]["path"]
    assert [each.is_best for each in offered] == [False, False, True]
    assert offered[2].label == "step 100, best"
    assert run.id in [each.id for each in runs_to_ask(found)]


def test_new_prompts_are_frozen_by_the_first_job_and_the_others_wait_for_it(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    prompts = new_prompts(run, "sampled")
    assert prompts.name.startswith("shapes-test-sampled-")
    assert prompts.name != new_prompts(run, "greedy").name
    first, second = ask(found, [candidates(found, run)[0], candidates(found, run)[2]], prompts)
    assert (first.kind, first.config["eval"]["save_panel"], first.config["eval"]["panel"]) == (
        "evaluate",
        prompts.name,
        None,
    )
    assert (first.config["eval"]["samples_per_prompt"], first.config["eval"]["temperature"]) == (4, 1.0)
    assert first.config["model"]["path"] == run.config["model"]["path"]
    assert (second.config["eval"]["panel"], second.config["data"]["eval"]) == (prompts.name, None)
    assert second.config["model"]["path"].endswith("step-000100")
    assert found.why_pending(second).code == "dependency"
    for job in (first, second):
        assert build_config(job.config, source="again").config.kind == "evaluate"


def test_a_double_click_makes_one_job_and_only_a_failed_one_is_asked_again(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    prompts, offered = new_prompts(run, "greedy"), candidates(found, run)[:1]
    (first,) = ask(found, offered, prompts)
    assert [job.id for job in ask(found, offered, prompts)] == [first.id]
    assert [each.job.id for each in asked(found, prompts.name)] == [first.id]
    found.cancel(first.id)
    (again,) = ask(found, offered, prompts)
    assert again.id != first.id
    assert again.state is JobState.QUEUED


def test_two_people_who_ask_or_start_at_once_get_one_job(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    prompts, offered = new_prompts(run, "greedy"), candidates(found, run)[:1]
    column = columns_of(found, run)[-1]
    users = Users(found.database)
    people = [users.local(), users.add("Ann Other", role="member")]

    def press(person: User) -> tuple[str, str]:
        own = Jobs(found.database, actor=person)
        (asked_job,) = ask(own, offered, prompts)
        return asked_job.id, start(own, column, host="127.0.0.1", gpus=0).id

    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(press, people))) == 1


def test_a_panel_that_was_kept_is_asked_as_it_is(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    panel = panel_of([Sample("s", (Message("user", (TextPart("2 + 2?"),)),), "4")], PanelSettings(8), name="sums")
    save_panel(panel, ImageStore())
    first, second = ask(found, candidates(found, run)[1:], Prompts("sums"))
    assert {first.config["eval"]["panel"], second.config["eval"]["panel"]} == {"sums"}
    assert found.why_pending(second).code != "dependency"
    with pytest.raises(ConfigError, match="panel 'gone' is gone"):
        ask(found, candidates(found, run)[:1], Prompts("gone"))


def test_how_far_a_job_is_is_read_from_what_it_says(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    (job,) = ask(found, candidates(found, run)[:1], new_prompts(run, "greedy"))
    prompts = new_prompts(run, "greedy").name
    assert (asked(found, prompts)[0].answered, asked(found, prompts)[0].share) == (None, 0.0)
    attempt = Path(job.run_dir) / "attempt-1"
    attempt.mkdir(parents=True)
    lines = ["evaluating a on 6 prompts", "answered 3 of 6 prompts", "saving"]
    events = [
        f'{{"time": "2026-01-01T00:00:0{n}+00:00", "kind": "progress", "step": 0, "message": "{text}"}}\n'
        for n, text in enumerate(lines)
    ]
    (attempt / "events.jsonl").write_text("".join(events))
    told = how_far(replace(job, state=JobState.RUNNING))
    assert (told.answered, told.share, told.message) == ((3, 6), 0.5, "saving")


def test_a_checkpoint_counts_as_answered_by_its_folder_or_its_models(jobs: tuple[Jobs, Job]) -> None:
    found, run = jobs
    panel = panel_of([Sample("s", (Message("user", (TextPart("2 + 2?"),)),), "4")], SETTINGS, name="sums")
    save_panel(panel, ImageStore())
    evaluation = evaluated(panel, 100, ("4", "4"), run=Path(run.run_dir))
    assert [is_answered(each, [evaluation]) for each in candidates(found, run)] == [False, False, True]
