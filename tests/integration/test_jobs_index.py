"""The index of run directories, users and tokens, the catalogue, and a database that goes away; on both engines."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from job_rows import claim, join, new_job, start, submit

from mmrl.errors import ConflictError, NotFoundError
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.errors import DatabaseUnavailableError, ForbiddenError, LeaseLostError
from mmrl.jobs.index_batch import IndexBatch
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.pools import Fleet
from mmrl.jobs.records import CheckpointRow, Lease, ShardRow
from mmrl.jobs.retry import Failure
from mmrl.jobs.settings import JobsSettings
from mmrl.jobs.states import JobState
from mmrl.jobs.users import Users


def test_few_points_are_told_as_they_are_and_many_as_means_with_extremes(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.add_metrics(lease, [(step, "loss", float(step)) for step in range(1, 101)])
    worker.add_metrics(lease, [(step, "reward", None if step == 3 else 1.0) for step in range(1, 6)])
    jobs = Jobs(job_database)
    assert jobs.metric_keys(lease.job_id) == ["loss", "reward"]
    exact = jobs.metrics(lease.job_id, ["loss"])["loss"]
    assert [(point.step, point.value) for point in exact] == [(step, float(step)) for step in range(1, 101)]
    thinned = jobs.metrics(lease.job_id, ["loss"], max_points=50)["loss"]
    assert [(point.step, point.value, point.low, point.high) for point in thinned[:2]] == [
        (2, 1.5, 1.0, 2.0),
        (5, 4.0, 3.0, 5.0),
    ]
    assert (len(thinned), thinned[-1].step, thinned[-1].value) == (34, 100, 99.5)
    two = jobs.metrics(lease.job_id, ["loss"], max_points=2)["loss"]
    assert [(point.step, point.value) for point in two] == [(74, 37.5), (100, pytest.approx(87.5))]
    assert [point.value for point in jobs.metrics(lease.job_id)["reward"]] == [1.0, 1.0, None, 1.0, 1.0]


def test_indexing_the_same_again_changes_nothing(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    batch = IndexBatch(
        metrics=[(step, "loss", 0.5) for step in range(60)],
        shards=[ShardRow("train", 1, 5, "/s/1", 40, 1000, "abc")],
        checkpoints=[CheckpointRow(5, "/c/5", 10, "sha", metrics={"eval/reward": 0.5})],
        history=[{"kind": "warning", "message": "hot"}],
        step=5,
        total_steps=10,
        first_step=0,
    )
    worker.index(lease, batch)
    before = _all_rows(job_database)
    worker.index(lease, batch)
    assert _all_rows(job_database) == before
    assert Jobs(job_database).metrics(lease.job_id, max_points=3)["loss"][0].value == 0.5
    job = Jobs(job_database).get(lease.job_id)
    assert (job.step, job.total_steps) == (5, 10)
    shard = Jobs(job_database).shards(lease.job_id)[0]
    assert (shard.split, shard.step_hi, shard.num_rows, shard.attempt) == ("train", 5, 40, 1)
    checkpoint = Jobs(job_database).checkpoints(lease.job_id)[0]
    assert (checkpoint.step, checkpoint.metrics, checkpoint.num_bytes) == (5, {"eval/reward": 0.5}, 10)


def test_a_stale_worker_indexes_nothing(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.fail(lease, Failure("killed", "signal 9"))
    before = _all_rows(job_database)
    with pytest.raises(LeaseLostError):
        worker.index(lease, IndexBatch(metrics=[(1, "loss", 1.0)], shards=[ShardRow("train", 1, 1, "u", 1, 1)]))
    assert _all_rows(job_database) == before


def test_of_a_resumed_run_only_the_surviving_line_counts(job_database: Database) -> None:
    """Attempt 1 reaches step 12, the next goes on from the checkpoint of step 10."""
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.progress(lease, 12, 20, first_step=0)
    worker.add_metrics(lease, [(step, "loss", 1.0) for step in range(1, 13)])
    worker.add_checkpoints(lease, [CheckpointRow(10, "/c/10")])
    worker.add_shards(lease, [ShardRow("train", step, step, f"/1/{step}", 1, 1) for step in (10, 11)])
    worker.fail(lease, Failure("killed", "signal 9"))
    again = _claim_again(job_database, worker)
    worker.progress(again, 10, first_step=10)
    jobs = Jobs(job_database)
    points = jobs.metrics(again.job_id)["loss"]
    assert [point.step for point in points] == list(range(1, 11))
    worker.add_metrics(again, [(11, "loss", 2.0)])
    worker.add_shards(again, [ShardRow("train", 11, 11, "/2/11", 1, 1)])
    points = jobs.metrics(again.job_id)["loss"]
    assert [(point.step, point.value, point.attempt) for point in points[-2:]] == [(10, 1.0, 1), (11, 2.0, 2)]
    assert [shard.uri for shard in jobs.shards(again.job_id)] == ["/1/10", "/2/11"]
    assert [row.step for row in jobs.checkpoints(again.job_id)] == [10]


@pytest.mark.parametrize("max_points", [2000, 20, 2])
def test_what_a_resumed_run_left_behind_is_in_no_mean(job_database: Database, max_points: int) -> None:
    """Attempt 1 writes 1.0 up to step 139, of which 1 to 60 survive; attempt 2 writes 3.0 from there on. With 2,000
    points values stand as they are, with 20 they are averaged, with 2 they come from roll-ups."""
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.progress(lease, 139, 200, first_step=0)
    worker.add_metrics(lease, [(step, "loss", 1.0) for step in range(1, 140)])
    worker.add_metrics(lease, [(step, "eval/reward", 1.0) for step in (50, 60, 100)])
    worker.fail(lease, Failure("killed", "signal 9"))
    again = _claim_again(job_database, worker)
    worker.progress(again, 100, first_step=60)
    worker.add_metrics(again, [(60, "eval/reward", 7.0), *((step, "loss", 3.0) for step in range(61, 101))])
    jobs = Jobs(job_database)
    found = jobs.metrics(again.job_id, max_points=max_points)
    points = found["loss"]
    assert len(points) <= max_points
    assert points[-1].step == 100
    assert [point.step for point in points] == sorted({point.step for point in points})
    assert {point.value for point in points if point.step <= 60} <= {1.0}
    assert points[-1].value == 3.0 or (max_points == 2 and 2.5 < (points[-1].value or 0) < 3.0)
    assert max(point.step for point in found["eval/reward"]) == 60
    assert found["eval/reward"][-1].value == (7.0 if max_points > 2 else 4.0)
    last = jobs.last_values(again.job_id)
    assert {key: (point.step, point.value) for key, point in last.items()} == {
        "loss": (100, 3.0),
        "eval/reward": (60, 7.0),
    }


def test_values_that_are_no_numbers_stay_missing_however_far_they_are_thinned(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    worker.add_metrics(lease, [(step, "loss", None) for step in range(1, 101)])
    worker.add_metrics(lease, [(step, "kl", None if step > 90 else 2.0) for step in range(1, 101)])
    jobs = Jobs(job_database)
    found = jobs.metrics(lease.job_id, max_points=10)
    assert {point.value for point in found["loss"]} == {None}
    assert len(found["loss"]) <= 10
    assert (found["kl"][0].value, found["kl"][-1].value) == (2.0, None)
    assert jobs.last_values(lease.job_id)["kl"].value is None
    assert jobs.metrics(lease.job_id, ["nothing"]) == {"nothing": []}


def test_compacted_shards_take_the_place_of_small_ones(job_database: Database) -> None:
    submit(job_database)
    worker = join(job_database)
    lease = start(worker)
    small = [ShardRow("train", step, step, f"/{step}", 1, 1) for step in (1, 2, 3)]
    worker.add_shards(lease, small)
    worker.add_shards(lease, [ShardRow("train", 1, 2, "/1-2", 2, 2)], replaces=small[:2])
    assert [shard.uri for shard in Jobs(job_database).shards(lease.job_id)] == ["/1-2", "/3"]


def test_workers_and_pools_tell_what_is_free(job_database: Database) -> None:
    submit(job_database, cpus=2, gpus=1)
    submit(job_database, cpus=9)
    worker = join(job_database, cpus=4, gpus=("gpu-a", "gpu-b"))
    lease = claim(worker)
    pool = Fleet(job_database).pools()[0]
    assert (pool.num_workers, pool.cpus, pool.free_cpus, pool.gpus, pool.free_gpus) == (1, 4, 2, 2, 1)
    assert (pool.num_queued, pool.num_held) == (1, 1)
    record = Fleet(job_database).workers()[0]
    assert (record.id, record.job_ids, record.is_alive) == (worker.worker_id, (lease.job_id,), True)
    Fleet(job_database).bury(worker.worker_id)
    assert Fleet(job_database).workers() == []
    assert len(Fleet(job_database).workers(include_dead=True)) == 1
    with pytest.raises(NotFoundError, match="no worker 'x'"):
        Fleet(job_database).drain("x")


def test_a_token_is_stored_as_a_hash_and_speaks_for_its_user_until_it_is_revoked(job_database: Database) -> None:
    users = Users(job_database)
    ann = users.add("ann", role="member", email="ann@example.org")
    text, token = users.create_token(ann.id, "laptop", scopes=["read", "submit"])
    assert text not in str(_all_rows(job_database))
    assert hashlib.sha256(text.encode()).hexdigest() in str(_all_rows(job_database))
    found = users.authenticate(text)
    assert (found.id, found.role, found.scopes) == (ann.id, "member", {"read", "submit"})
    assert users.tokens(ann.id)[0].last_used_at is not None
    Jobs(job_database, actor=found).submit(new_job())
    with pytest.raises(ForbiddenError, match="the token's scopes are read, submit"):
        Jobs(job_database, actor=found).cancel("probe")
    assert users.revoke_token(token.id).revoked_at is not None
    for wrong in (text, text[:-1], "", "mmrl_x"):
        with pytest.raises(ForbiddenError, match="this token is not valid"):
            users.authenticate(wrong)


def test_a_token_ends_with_its_time_or_its_user(job_database: Database) -> None:
    users = Users(job_database)
    users.add("boss", role="admin")
    ann = users.add("ann", role="admin")
    old, _ = users.create_token(ann.id, "old", scopes=["read"], expires_at=datetime.now(UTC) - timedelta(seconds=1))
    good, _ = users.create_token(ann.id, "good", scopes=["read"], expires_at=datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(ForbiddenError, match="not valid"):
        users.authenticate(old)
    assert users.authenticate(good).id == ann.id
    assert users.set_disabled(ann.id, True).is_disabled
    with pytest.raises(ForbiddenError, match="not valid"):
        users.authenticate(good)
    users.set_disabled(ann.id, False)
    assert users.set_role(ann.id, "viewer").role == users.authenticate(good).role == "viewer"


def test_users_are_known_by_their_issuer_and_the_account_by_its_name(job_database: Database) -> None:
    users = Users(job_database)
    ann = users.add("ann", role="viewer", oidc=("https://login", "42"))
    found = users.find_oidc("https://login", "42")
    assert found == ann
    assert users.find_oidc("https://login", "43") is None
    with pytest.raises(ConflictError, match="'42' of 'https://login' is one already"):
        users.add("bob", role="viewer", oidc=("https://login", "42"))
    local = users.local()
    assert (local, local.role) == (users.local(), "admin")
    assert {user.name for user in users.all()} == {"ann", local.name}
    with pytest.raises(NotFoundError, match="no user 'x'"):
        users.get("x")


def test_the_catalogue_follows_the_registry(job_database: Database) -> None:
    from mmrl.data.registry import DatasetRegistry, register
    from mmrl.types import Message, Sample, TextPart

    def samples(count: int) -> list[Sample]:
        return [Sample(f"s{n}", (Message("user", (TextPart(str(n)),)),), answer=str(n)) for n in range(count)]

    catalogue = Catalogue(job_database)
    first = register("sums", {"train": samples(2)}, source="a.jsonl")
    ann = Users(job_database).add("ann", role="member")
    row = catalogue.note(first, owner_id=ann.id)
    assert (row.name, row.version, row.num_rows, row.is_current, row.owner_id) == (
        "sums",
        first.version,
        2,
        True,
        ann.id,
    )
    second = register("sums", {"train": samples(3)}, source="b.jsonl")
    other = register("words", {"train": samples(1)}, source="c.jsonl")
    assert catalogue.sync() == 3
    assert [(row.name, row.version) for row in catalogue.all()] == [("sums", second.version), ("words", other.version)]
    assert catalogue.get("sums", first.version).owner_id == ann.id
    (DatasetRegistry().root / "words" / other.version / "manifest.json").unlink()
    catalogue.sync()
    assert [row.name for row in catalogue.all()] == ["sums"]
    assert catalogue.get("words", other.version).validation_state == "missing"
    with pytest.raises(NotFoundError, match="no data set 'nothing'"):
        catalogue.get("nothing")


def test_a_job_keeps_the_versions_of_the_data_sets_that_it_names(job_database: Database) -> None:
    from mmrl.data.registry import register
    from mmrl.types import Message, Sample, TextPart

    sample = Sample("s", (Message("user", (TextPart("1"),)),), answer="1")
    sums = register("sums", {"train": [sample], "test": [sample]}, source="x")
    words = register("words", {"train": [sample]}, source="y")
    data = {
        "train": [{"name": "sums@train", "weight": 1.0}, {"name": "words"}, {"name": "/a/file.jsonl"}],
        "eval": "sums@test",
    }
    job = submit(job_database, config={"name": "x", "kind": "rl", "data": data})
    assert job.data_hashes == {"sums@train": sums.version, "words": words.version, "sums@test": sums.version}


@pytest.mark.postgres
@pytest.mark.parametrize("how", ["immediate", "fast"])
def test_a_database_that_goes_away_and_comes_back_costs_an_error_and_no_job(how: str, tmp_path: object) -> None:
    """A server of its own, stopped in the middle: what is written meanwhile is refused as a whole, the rest goes on
    with the same objects."""
    from postgres_server import PostgresServer

    server = PostgresServer.begin()
    try:
        url = server.create_database()
        with Database.open(url, settings=JobsSettings(lease_s=60, beat_s=0.5)) as database:
            job = submit(database)
            worker = join(database)
            lease = start(worker)
            server.stop(mode=how)
            for act in (lambda: worker.beat([lease]), lambda: Jobs(database).list(), lambda: submit(database)):
                with pytest.raises(DatabaseUnavailableError, match="cannot be reached"):
                    act()
            server.start()
            assert _when_back(worker, lease)
            assert worker.beat([lease])[job.id].is_held
            worker.move(lease, JobState.SUCCEEDED, cause="finished")
            assert [found.state for found in Jobs(database).list()] == [JobState.SUCCEEDED]
    finally:
        server.end()


def _when_back(worker: Leases, lease: Lease) -> bool:
    """As a supervisor waits; the first call may still meet a connection that died."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            return worker.beat([lease])[lease.job_id].is_held
        except DatabaseUnavailableError:
            time.sleep(0.05)
    return False


def _claim_again(database: Database, worker: Leases) -> Lease:
    with database.transaction() as connection:
        connection.execute(sa.text("UPDATE jobs SET available_at = 0"))
    return start(worker)


def _all_rows(database: Database) -> dict[str, list[tuple[object, ...]]]:
    from mmrl.jobs.tables import metadata

    with database.reading() as connection:
        return {
            name: sorted(tuple(map(str, row)) for row in connection.execute(sa.select(table)))
            for name, table in metadata.tables.items()
        }
