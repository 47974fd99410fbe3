"""What people submit, on both engines: what a job keeps, what is refused, and when the same job comes back."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from job_rows import join, new_job, submit

from mmrl.errors import ConfigError, ConflictError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import User
from mmrl.jobs.searching import JobFilter
from mmrl.jobs.states import Desired, JobState
from mmrl.jobs.users import Users


def test_a_job_keeps_what_it_was_given(job_database: Database) -> None:
    config = {"name": "x", "kind": "noop", "noop": {"seconds": 1e-6, "word": "no"}, "seed": 3}
    later = datetime(2100, 1, 2, 3, 4, 5, tzinfo=UTC)
    new = new_job(
        "x", config=config, pool="gpu", cpus=2, gpus=1, priority=7, max_attempts=5, available_at=later,
        tags=("a", "b"), note="why", backend="ray", run_dir="/runs/x", resume_checkpoint="/runs/w/checkpoints/step-5",
    )  # fmt: skip
    job = Jobs(job_database).submit(new)
    assert job == Jobs(job_database).get(job.id)
    assert job.config == config
    assert list(job.config) == list(config)
    assert (job.pool, job.cpus, job.gpus, job.priority, job.max_attempts) == ("gpu", 2, 1, 7, 5)
    assert (job.available_at, job.tags, job.note, job.backend) == (later, ("a", "b"), "why", "ray")
    assert (job.run_dir, job.resume_checkpoint) == ("/runs/x", "/runs/w/checkpoints/step-5")
    assert (job.state, job.desired, job.attempt, job.lease_epoch) == (JobState.QUEUED, Desired.RUN, 0, 0)
    assert job.code_version
    assert len(job.config_sha256) == 64


def test_the_same_config_has_the_same_hash_whatever_the_order_of_its_keys(job_database: Database) -> None:
    one = submit(job_database, config={"name": "x", "kind": "noop", "a": 1, "b": {"c": 1.0, "d": None}})
    two = submit(job_database, config={"b": {"d": None, "c": 1.0}, "a": 1, "kind": "noop", "name": "x"})
    other = submit(job_database, config={"b": {"d": None, "c": 2.0}, "a": 1, "kind": "noop", "name": "x"})
    assert one.config_sha256 == two.config_sha256 != other.config_sha256


def test_run_directories_are_named_after_job_and_id(job_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmrl.config.base import home

    job = submit(job_database, "my run/1")
    assert job.run_dir == str(home() / "runs" / f"my-run-1-{job.short_id}")
    monkeypatch.setenv("MMRL_RUNS_URL", "s3://bucket/runs/")
    remote = submit(job_database, "other")
    assert remote.run_dir == f"s3://bucket/runs/other-{remote.short_id}"


def test_of_several_people_who_submit_the_same_at_once_one_does(job_database: Database) -> None:
    wanted = JobFilter(kinds=("noop",), tags=("serves",), states=(JobState.QUEUED,))
    owners = [Users(job_database).add(f"Person {number}", role="member") for number in range(4)]

    def press(owner: User) -> str:
        return Jobs(job_database, actor=owner).submit(new_job(tags=("serves",)), unless=wanted).id

    with ThreadPoolExecutor(len(owners)) as pool:
        (first,) = set(pool.map(press, owners))
    Jobs(job_database).cancel(first)
    assert press(owners[0]) != first


def test_j01_the_same_idempotency_key_gives_the_first_job_back(job_database: Database) -> None:
    first = submit(job_database, idempotency_key="click")
    assert submit(job_database, idempotency_key="click").id == first.id
    assert len(Jobs(job_database).list()) == 1
    with pytest.raises(ConflictError, match=f"'click' was used for job {first.id} with another config"):
        submit(job_database, "else", idempotency_key="click")
    assert submit(job_database, "else", idempotency_key="other").id != first.id


def test_idempotency_keys_are_each_owners_own(job_database: Database) -> None:
    ann, bob = (Users(job_database).add(name, role="member") for name in ("ann", "bob"))
    ids = {Jobs(job_database, actor=user).submit(new_job(idempotency_key="k")).id for user in (ann, bob, ann)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("key", "config"),
    [
        ("judge.api_key", {"judge": {"api_key": "fake-key-1234567890"}}),
        ("reward.1.arguments.auth_token", {"reward": [{}, {"arguments": {"auth_token": "abc"}}]}),
        ("storage.url", {"storage": {"url": "https://me:hunter2@host/x"}}),
        ("note", {"note": "use sk-abcdefghijklmnop1234"}),
    ],
)
def test_x07_a_literal_secret_is_refused_by_its_key_and_shown_nowhere(
    job_database: Database, key: str, config: dict
) -> None:
    with pytest.raises(ConfigError) as caught:
        submit(job_database, config={"name": "x", "kind": "noop", **config})
    text = str(caught.value)
    assert text.startswith(f"{key}: a secret may not stand in a job's config")
    assert not any(secret in text for secret in ("fake-key", "abc,", "hunter2", "sk-abc"))
    assert Jobs(job_database).list() == []


def test_references_to_secrets_are_kept_as_they_are(job_database: Database) -> None:
    config = {"name": "x", "kind": "noop", "judge": {"api_key": "env:KEY", "token": "file:/run/secrets/token"}}
    assert submit(job_database, config=config).config == config


def test_a_draft_waits_to_be_started(job_database: Database) -> None:
    jobs = Jobs(job_database)
    draft = jobs.submit(new_job(), as_draft=True)
    assert draft.state is JobState.DRAFT
    assert join(job_database).claim() is None
    assert jobs.start(draft.id).state is JobState.QUEUED
    with pytest.raises(ConflictError, match="is no draft: it is queued"):
        jobs.start(draft.id)


def test_what_cannot_be_is_refused(job_database: Database) -> None:
    for fields, words in (
        ({"cpus": 0}, "a job needs cpus or gpus"),
        ({"gpus": -1}, "a job needs cpus or gpus"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"available_at": datetime(2030, 1, 1)}, "has no zone"),
        ({"config": {"noop": {"failure": "\ud800"}}}, "half of a surrogate pair"),
        ({"name": " "}, "the name is empty"),
        ({"name": "two\nlines"}, "one line"),
        ({"name": "x" * 201}, "201 characters; at most 200"),
        ({"pool": "$(id) ; gpu"}, "a pool is letters"),
        ({"idempotency_key": ""}, "the idempotency key is empty"),
        ({"run_dir": ""}, "the run directory is empty"),
        ({"tags": ("a", "")}, "the tag is empty"),
        ({"cpus": 10**10}, "cpus is 10000000000; at most"),
        ({"max_attempts": 10**10}, "max_attempts is 10000000000; at most"),
        ({"priority": 2**31}, "priority is 2147483648; it lies between"),
        ({"priority": -(2**80)}, "priority is -1"),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)):
            submit(job_database, **fields)
    assert Jobs(job_database).list() == []


def test_a_name_may_be_of_any_script_and_a_priority_as_large_as_allowed(job_database: Database) -> None:
    job = submit(
        job_database, name="数字 grpo; $(x)", priority=10**9, cpus=10**6, max_attempts=10**6, pool="h200.a-b_c"
    )
    assert Jobs(job_database).get("数字 grpo; $(x)") == Jobs(job_database).get(job.id)
    with pytest.raises(ConfigError, match="priority is 1000000001"):
        Jobs(job_database).set_priority(job.id, 10**9 + 1)
    with pytest.raises(ConfigError, match="the tag is empty"):
        Jobs(job_database).describe(job.id, tags=[" "])


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "sk-0123456789abcdef0123"},
        {"note": "use hf_0123456789abcdef0123"},
        {"tags": ("AKIA0123456789ABCDEF",)},
        {"run_dir": "s3://key:very-secret@bucket/x"},
        {"idempotency_key": "Bearer 0123456789abcdef"},
    ],
)
def test_x07_a_secret_in_any_field_of_a_job_is_refused_and_not_repeated(
    job_database: Database, fields: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"looks like a key or a password|a secret may not stand") as caught:
        submit(job_database, **fields)
    assert not re.search("0123456789|very-secret", str(caught.value))
    assert Jobs(job_database).list() == []


def test_two_open_jobs_never_share_a_run_directory(job_database: Database) -> None:
    first = submit(job_database, run_dir="/runs/x", idempotency_key="k")
    assert submit(job_database, run_dir="/runs/x", idempotency_key="k").id == first.id
    with pytest.raises(ConflictError, match=f"/runs/x is the run directory of job {first.id}, which is queued"):
        submit(job_database, run_dir="/runs/x")
    Jobs(job_database).cancel(first.id)
    assert submit(job_database, run_dir="/runs/x").run_dir == "/runs/x"


@pytest.mark.parametrize(
    "config",
    [
        {"reward": [{"type": "function", "path": "r.py", "name": "score"}]},
        {"stages": [{"after": "reward", "path": "mine.stages", "name": "Filter"}]},
        {"model": {"path": "m", "trust_remote_code": True}},
        {"algorithm": {"type": "grpo", "advantage": {"path": "/x/mine.py", "name": "f"}}},
        {"reward": [{"type": "remote", "url": "http://127.0.0.1:9/", "api_key": "file:~/.mmrl/console/key"}]},
        {"reward": [{"type": "gate", "condition": {"type": "format"}, "reward": {"type": "judge", "model": "m"}}]},
        {"tracking": [{"token": "env:SOMEBODYS_KEY"}]},
    ],
)
def test_code_secrets_and_servers_are_for_admins_unless_allowed(job_database: Database, config: dict) -> None:
    ann = Users(job_database).add("ann", role="member")
    new = new_job(config={"name": "x", "kind": "rl", **config})
    jobs = Jobs(job_database, actor=ann)
    with pytest.raises(ForbiddenError, match="ann may not submit a config that runs code of its own"):
        jobs.submit(new)
    job_database.settings = job_database.settings.model_copy(update={"members_may_run_code": True})
    assert jobs.submit(new).owner_id == ann.id
