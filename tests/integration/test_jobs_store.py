"""What people do with jobs, on both engines: submit, cancel, pause, resume, retry, ask why, follow the lineage."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from job_rows import claim, finish, join, new_job, start, submit

from mmrl.errors import ConfigError, ConflictError, NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import CheckpointRow
from mmrl.jobs.retry import Failure
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


def test_a_job_waits_for_those_before_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first, second = submit(job_database, "first"), submit(job_database, "second")
    third = submit(job_database, "third", after=(first.id, second.id), priority=9)
    assert third.after == tuple(sorted((first.id, second.id)))
    worker = join(job_database)
    one = start(worker)
    finish(worker, one)
    assert jobs.why_pending(third).message == f"waits for job {second.id} (second), which is queued"
    finish(worker, start(worker))
    assert claim(worker).job_id == third.id
    assert submit(job_database, after=(first.id,)).state is JobState.QUEUED


def test_what_waits_for_a_job_that_failed_is_cancelled_and_comes_back_with_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first = submit(job_database, "first")
    second = submit(job_database, "second", after=(first.id,))
    third = submit(job_database, "third", after=(second.id, first.id))
    worker = join(job_database)
    worker.fail(start(worker), Failure("config", "no such key", 2))
    for job_id in (second.id, third.id):
        ended = jobs.get(job_id)
        assert (ended.state, ended.error_class) == (JobState.CANCELLED, "dependency")
    assert jobs.get(second.id).error_message == f"job {first.id}, which it waits for, has failed"
    with pytest.raises(ConflictError, match="has ended as failed and can succeed no more"):
        submit(job_database, after=(first.id,))
    again = jobs.retry(first.id)
    by_name = {job.name: job for job in jobs.list(states=[JobState.QUEUED])}
    assert set(by_name) == {"first", "second", "third"}
    assert by_name["second"].after == (again.id,)
    assert by_name["third"].after == tuple(sorted((by_name["second"].id, again.id)))
    assert by_name["third"].parent_job_id == third.id
    names = []
    for _ in range(3):
        lease = start(worker)
        names.append(lease.job.name)
        finish(worker, lease)
    assert names == ["first", "second", "third"]


def test_an_unknown_job_cannot_be_waited_for(job_database: Database) -> None:
    with pytest.raises(NotFoundError, match="after: no job nobody"):
        submit(job_database, after=("nobody",))


def test_a_queued_job_is_cancelled_or_paused_at_once(job_database: Database) -> None:
    jobs = Jobs(job_database)
    one, other = submit(job_database), submit(job_database)
    assert jobs.cancel(one.id).state is JobState.CANCELLED
    assert jobs.cancel(one.id).state is JobState.CANCELLED  # again changes nothing
    assert jobs.pause(other.id).state is JobState.PAUSED
    assert join(job_database).claim() is None
    resumed = jobs.resume(other.id)
    assert (resumed.id, resumed.state, resumed.desired) == (other.id, JobState.QUEUED, Desired.RUN)


def test_a_running_job_is_asked_and_its_worker_moves_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    asked = jobs.pause(lease.job_id)
    assert (asked.state, asked.desired) == (JobState.RUNNING, Desired.PAUSE)
    assert jobs.cancel(lease.job_id).desired is Desired.CANCEL  # the stronger wish wins
    assert jobs.pause(lease.job_id).desired is Desired.CANCEL
    assert jobs.kill(lease.job_id).desired is Desired.KILL
    assert jobs.cancel(lease.job_id).desired is Desired.KILL
    worker.move(lease, JobState.STOPPING, cause="cancel")
    worker.move(lease, JobState.CANCELLED, cause="cancel")
    causes = [event.cause for event in jobs.events(lease.job_id) if event.to_state is None]
    assert causes == ["pause_requested", "cancel_requested", "kill_requested"]


def test_j07_a_cancel_after_the_end_is_refused_and_changes_nothing(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    finish(worker, lease)
    before = jobs.get(lease.job_id)
    with pytest.raises(ConflictError, match="cannot be cancelled: it is succeeded"):
        jobs.cancel(lease.job_id)
    assert jobs.get(lease.job_id) == before


def test_resuming_a_paused_job_is_a_new_attempt_of_it(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.move(lease, JobState.STOPPING, cause="pause")
    worker.move(lease, JobState.PAUSED, cause="pause")
    resumed = jobs.resume(lease.job_id)
    assert (resumed.id, resumed.run_dir) == (lease.job_id, lease.job.run_dir)
    again = claim(worker)
    assert (again.job_id, again.attempt, again.lease_epoch) == (lease.job_id, 2, 2)
    assert [attempt.end_reason for attempt in jobs.attempts(lease.job_id)] == ["pause", None]


def test_resuming_a_cancelled_job_makes_a_child_that_goes_on_from_its_last_checkpoint(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database, "run", tags=("a",), priority=2)
    worker = join(job_database)
    lease = start(worker)
    steps = [
        CheckpointRow(5, "/c/step-5"),
        CheckpointRow(10, "/c/step-10"),
        CheckpointRow(15, "/c/15", state="writing"),
    ]
    worker.add_checkpoints(lease, steps)
    worker.move(lease, JobState.STOPPING, cause="cancel")
    worker.move(lease, JobState.CANCELLED, cause="cancel")
    child = jobs.resume(lease.job_id)
    assert (child.parent_job_id, child.resume_checkpoint, child.state) == (lease.job_id, "/c/step-10", JobState.QUEUED)
    assert child.run_dir != lease.job.run_dir
    assert (child.config, child.tags, child.priority, child.attempt) == (lease.job.config, ("a",), 2, 0)
    assert jobs.resume(lease.job_id).id == child.id  # a second click finds the first one's job
    finish(worker, start(worker))
    with pytest.raises(ConflictError, match="cannot be resumed: it is succeeded"):
        jobs.resume(child.id)
    grandchild = jobs.resume(lease.job_id)
    assert [job.id for job in jobs.lineage(grandchild.id)] == [lease.job_id, grandchild.id]
    assert [job.id for job in jobs.children(lease.job_id)] == [child.id, grandchild.id]


def test_c10_resuming_a_job_that_has_no_checkpoint_starts_afresh(job_database: Database) -> None:
    jobs = Jobs(job_database)
    job = submit(job_database)
    jobs.cancel(job.id)
    assert jobs.resume(job.id).resume_checkpoint is None


def test_retrying_begins_where_the_job_began(job_database: Database) -> None:
    jobs = Jobs(job_database)
    submit(job_database, resume_checkpoint="/given")
    worker = join(job_database)
    lease = start(worker)
    worker.add_checkpoints(lease, [CheckpointRow(5, "/c/step-5")])
    worker.fail(lease, Failure("code", "ValueError", 1))
    assert jobs.retry(lease.job_id).resume_checkpoint == "/given"
    with pytest.raises(ConflictError, match="cannot be tried again: it is queued"):
        jobs.retry(jobs.children(lease.job_id)[0].id)


def test_a_draft_waits_to_be_started(job_database: Database) -> None:
    jobs = Jobs(job_database)
    draft = jobs.submit(new_job(), as_draft=True)
    assert draft.state is JobState.DRAFT
    assert join(job_database).claim() is None
    assert jobs.start(draft.id).state is JobState.QUEUED
    with pytest.raises(ConflictError, match="is no draft: it is queued"):
        jobs.start(draft.id)


def test_why_a_job_waits_is_always_answered(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first = submit(job_database, "first", gpus=2, cpus=1)
    second = submit(job_database, "second")

    def why(job_id: str) -> tuple[str, int | None]:
        reason = jobs.why_pending(job_id)
        return reason.code, reason.position

    assert why(first.id) == ("no_worker", 1)
    assert "no worker for pool default" in jobs.why_pending(first.id).message
    join(job_database, gpus=("gpu-a",), cpus=1)
    assert why(first.id) == ("too_large", 1)
    assert "needs 1 CPU slots and 2 GPUs" in jobs.why_pending(first.id).message
    assert why(second.id) == ("busy", 2)
    worker = join(job_database, gpus=("gpu-b", "gpu-c"), cpus=1)
    assert why(first.id) == ("next", 1)
    lease = start(worker)
    assert (lease.job_id, why(first.id)) == (first.id, ("not_queued", None))
    third = submit(job_database, "third", gpus=2, priority=5)
    assert jobs.why_pending(third).message.endswith("too few GPUs: 0 of 2 free on one worker, needs 2")
    later = submit(job_database, available_at=datetime.now(UTC) + timedelta(hours=1))
    assert why(later.id) == ("not_before", None)
    Fleet(job_database).set_capacity("default", 1)
    assert jobs.why_pending(second).message.endswith("the pool is full: 1 of 1 jobs at once")
    wrong = submit(job_database, pool="gpuu")
    assert "no worker for pool gpuu" in jobs.why_pending(wrong).message
    assert "pools with workers: default" in jobs.why_pending(wrong).message


def test_jobs_are_found_by_id_by_parts_of_it_and_by_name(job_database: Database) -> None:
    jobs = Jobs(job_database)
    first, second = submit(job_database, "digits"), submit(job_database, "digits")
    assert jobs.get(first.id).id == first.id
    assert jobs.get(first.short_id).id == first.id
    assert jobs.get(first.id[:35]).id == first.id
    assert jobs.get("digits").id == second.id
    with pytest.raises(NotFoundError, match="several jobs have ids like"):
        jobs.get(first.id[:6])
    with pytest.raises(NotFoundError, match="no job 'digit', neither by id nor by name; nearest: digits"):
        jobs.get("digit")


def test_lists_are_newest_first_and_come_in_pages(job_database: Database) -> None:
    jobs = Jobs(job_database)
    ids = [submit(job_database, f"job-{index}", pool="even" if index % 2 == 0 else "odd").id for index in range(7)]
    page = jobs.list(limit=3)
    assert [job.id for job in page] == ids[:3:-1]
    assert [job.id for job in jobs.list(limit=3, before=page[-1].id)] == ids[3:0:-1]
    assert [job.id for job in jobs.list(pool="odd")] == ids[5:0:-2]
    jobs.cancel(ids[2])
    assert [job.id for job in jobs.list(states=[JobState.CANCELLED])] == [ids[2]]
    assert [job.name for job in jobs.list(name="job-4")] == ["job-4"]
    assert jobs.list(kind="rl") == []


def test_a_job_can_be_described_later(job_database: Database) -> None:
    jobs = Jobs(job_database)
    job = submit(job_database, tags=("a",))
    assert jobs.describe(job.id, tags=["c", "b"]).tags == ("b", "c")
    assert jobs.describe(job.id, note="good").note == "good"
    assert jobs.get(job.id).tags == ("b", "c")
    assert [event.payload for event in jobs.events(job.id)][-1] == {"note": "good"}


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


def test_members_change_their_own_jobs_and_admins_all(job_database: Database) -> None:
    users = Users(job_database)
    ann, bob, eve = (
        users.add(name, role=role) for name, role in (("ann", "member"), ("bob", "member"), ("eve", "viewer"))
    )
    job = Jobs(job_database, actor=ann).submit(new_job())
    assert job.owner_id == ann.id
    with pytest.raises(ForbiddenError, match="bob may not change this job: it takes the role admin"):
        Jobs(job_database, actor=bob).cancel(job.id)
    with pytest.raises(ForbiddenError, match="eve may not submit jobs"):
        Jobs(job_database, actor=eve).submit(new_job())
    with pytest.raises(ForbiddenError, match="bob may not administer"):
        Jobs(job_database, actor=bob).submit(new_job(owner=ann.id))
    assert Jobs(job_database, actor=ann).pause(job.id).state is JobState.PAUSED
    root = users.add("root", role="admin")
    assert Jobs(job_database, actor=root).cancel(job.id).state is JobState.CANCELLED


@pytest.mark.parametrize(
    "config",
    [
        {"reward": [{"type": "function", "path": "r.py", "name": "score"}]},
        {"stages": [{"after": "reward", "path": "mine.stages", "name": "Filter"}]},
        {"model": {"path": "m", "trust_remote_code": True}},
        {"algorithm": {"type": "grpo", "advantage": {"path": "/x/mine.py", "name": "f"}}},
    ],
)
def test_code_of_ones_own_is_for_admins_unless_allowed(job_database: Database, config: dict) -> None:
    ann = Users(job_database).add("ann", role="member")
    new = new_job(config={"name": "x", "kind": "rl", **config})
    jobs = Jobs(job_database, actor=ann)
    with pytest.raises(ForbiddenError, match="ann may not submit a config that runs code of its own"):
        jobs.submit(new)
    job_database.settings = job_database.settings.model_copy(update={"members_may_run_code": True})
    assert jobs.submit(new).owner_id == ann.id


def test_j04_a_job_whose_worker_is_gone_can_be_ended_or_resumed_where_no_worker_is_left(job_database: Database) -> None:
    jobs = Jobs(job_database)
    worker = join(job_database)
    ids = [submit(job_database).id for _ in range(3)]
    for _ in ids:
        start(worker)
    with job_database.transaction() as connection:
        connection.execute(sa.text("UPDATE jobs SET lease_expires_at = 0"))
    assert jobs.kill(ids[0]).state is JobState.CANCELLED
    assert jobs.resume(ids[1]).state is JobState.QUEUED
    asked = jobs.cancel(ids[2])
    assert (asked.state, asked.desired) == (JobState.LOST, Desired.CANCEL)


def test_a_worker_that_the_database_does_not_know_is_told_so(job_database: Database) -> None:
    with pytest.raises(NotFoundError, match="knows no worker 'nobody'; start the worker anew"):
        Leases(job_database, "nobody").beat([])
