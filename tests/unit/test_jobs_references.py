"""What an earlier job leaves behind, by its id, and pipelines that are gone on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from mmrl.config.pipeline import load_pipeline
from mmrl.errors import ConfigError, NotFoundError
from mmrl.jobs import tables
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.pipelines import start_pipeline
from mmrl.jobs.records import Job, NewJob
from mmrl.jobs.references import resolve_references, stored_references, unready_references
from mmrl.jobs.states import JobState

PIPELINE = """\
name: p
steps:
  a: {config: {kind: noop}}
  b: {config: {kind: noop, noop: {failure: "${a.run_dir}"}}}
  c: {config: {kind: noop}, after: [b]}
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    database = Database.open(f"sqlite:///{tmp_path}/jobs.db")
    yield Jobs(database)
    database.close()


def ended(jobs: Jobs, job: Job, state: JobState) -> None:
    """As a worker would leave it behind."""
    with jobs.database.transaction() as connection:
        table = tables.jobs
        connection.execute(sa.update(table).where(table.c.id == job.id).values(state=state.value))


def with_checkpoints(job: Job, *steps: int, best: int | None = None) -> Path:
    run_dir = Path(job.run_dir)
    (run_dir / "attempt-1").mkdir(parents=True)
    (run_dir / "config.yaml").write_text("name: n\ncheckpoint: {best: eval/reward}\n")
    for step in steps:
        folder = run_dir / "checkpoints" / f"step-{step:06d}"
        (folder / "model").mkdir(parents=True)
        metrics = {"eval/reward": 1.0 if step == best else 0.5}
        (folder / "manifest.json").write_text(json.dumps({"step": step, "metrics": metrics, "files": {}}))
    return run_dir


def test_references_become_paths_wherever_they_stand(jobs: Jobs) -> None:
    job = jobs.submit(NewJob({}, name="sft", kind="sft"))
    run_dir = with_checkpoints(job, 10, 20, 30, best=20)
    ended(jobs, job, JobState.SUCCEEDED)
    config = {
        "model": {"path": f"job:{job.id}/model@best"},
        "reward": [{"path": f"job:{job.id}/model"}, {"path": f"job:{job.id}/model@10"}],
        "note": f"job:{job.id}/run_dir",
        "step": 3,
    }
    assert resolve_references(config, jobs) == {
        "model": {"path": str(run_dir / "checkpoints" / "step-000020" / "model")},
        "reward": [
            {"path": str(run_dir / "checkpoints" / "step-000030" / "model")},
            {"path": str(run_dir / "checkpoints" / "step-000010" / "model")},
        ],
        "note": str(run_dir),
        "step": 3,
    }


def test_a_failed_job_stands_for_the_child_that_succeeded(jobs: Jobs) -> None:
    job = jobs.submit(NewJob({}, name="sft", kind="sft"))
    with_checkpoints(job, 10)
    ended(jobs, job, JobState.FAILED)
    with pytest.raises(NotFoundError, match="is failed"):
        resolve_references({"path": f"job:{job.id}/model"}, jobs)
    child = jobs.resume(job.id)
    with pytest.raises(NotFoundError, match="mmrl job resume"):
        resolve_references({"path": f"job:{job.id}/model"}, jobs)
    run_dir = with_checkpoints(child, 40)
    ended(jobs, child, JobState.SUCCEEDED)
    found = resolve_references({"path": f"job:{job.id}/model"}, jobs)
    assert found == {"path": str(run_dir / "checkpoints" / "step-000040" / "model")}


def test_a_reference_that_cannot_be_meant_is_refused(jobs: Jobs) -> None:
    job = jobs.submit(NewJob({}, name="sft", kind="sft"))
    with_checkpoints(job, 10)
    ended(jobs, job, JobState.SUCCEEDED)
    with pytest.raises(ConfigError, match="names no result of a job"):
        resolve_references({"path": f"job:{job.id}/weights"}, jobs)
    with pytest.raises(NotFoundError, match="no checkpoint of step 7"):
        resolve_references({"path": f"job:{job.id}/model@7"}, jobs)


def states(pipeline: object) -> dict[str, str]:
    return {step: str(job.state) for step, job in pipeline.current.items()}  # type: ignore[attr-defined]


def test_a_pipeline_started_again_keeps_what_succeeded_and_resumes_what_failed(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    first = start_pipeline(jobs, load_pipeline(path), pool="x")
    assert states(first) == {"a": "queued", "b": "queued", "c": "queued"}
    assert jobs.get(first.roots["b"]).after == (first.roots["a"],)
    assert first.current["b"].config["noop"]["failure"] == f"job:{first.roots['a']}/run_dir"
    ended(jobs, first.current["a"], JobState.SUCCEEDED)
    with jobs.database.transaction() as connection:
        table = tables.jobs
        failed = {"state": "failed"}
        connection.execute(sa.update(table).where(table.c.id == first.roots["b"]).values(**failed))
        cancelled = {"state": "cancelled", "error_class": "dependency"}
        connection.execute(sa.update(table).where(table.c.id == first.roots["c"]).values(**cancelled))

    again = start_pipeline(jobs, load_pipeline(path), pool="x")
    assert again.roots == first.roots
    assert states(again) == {"a": "succeeded", "b": "queued", "c": "queued"}
    assert again.current["b"].parent_job_id == first.roots["b"]
    assert again.current["c"].parent_job_id == first.roots["c"]
    assert again.current["c"].after == (again.current["b"].id,)
    third = start_pipeline(jobs, load_pipeline(path), pool="x")
    assert {step: job.id for step, job in third.current.items()} == {
        step: job.id for step, job in again.current.items()
    }


def test_a_step_is_another_when_its_config_or_one_before_it_changed(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE)
    first = start_pipeline(jobs, load_pipeline(path), pool="x")
    path.write_text(PIPELINE.replace("b: {config: {kind: noop, noop: {", "b: {config: {kind: noop, noop: {steps: 2, "))
    second = start_pipeline(jobs, load_pipeline(path), pool="x")
    assert second.roots["a"] == first.roots["a"]
    assert second.roots["b"] != first.roots["b"]
    assert second.roots["c"] != first.roots["c"]
    fresh = start_pipeline(jobs, load_pipeline(path), pool="x", salt="/1")
    assert not set(fresh.roots.values()) & set(second.roots.values())


def test_nothing_is_submitted_where_a_later_step_is_wrong(jobs: Jobs, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(PIPELINE.replace("c: {config: {kind: noop}", "c: {config: {kind: noop, noop: {stepz: 1}}"))
    with pytest.raises(ConfigError, match="stepz"):
        start_pipeline(jobs, load_pipeline(path), pool="x")
    assert jobs.list() == []


def test_references_that_are_not_paths_yet_are_told_and_nothing_is_fetched(jobs: Jobs, tmp_path: Path) -> None:
    local = jobs.submit(NewJob({}, name="sft", kind="sft"))
    stored = jobs.submit(NewJob({}, name="rm", kind="reward_model", run_dir="s3://nowhere.invalid/rm"))
    ended(jobs, stored, JobState.SUCCEEDED)
    config = {"model": {"path": f"job:{local.id}/model"}, "rewards": [f"job:{stored.id}/run_dir"]}
    waiting, fetched = unready_references(config, jobs)
    assert f"{local.short_id} (sft) is queued; it is looked up when the job starts" in waiting
    assert "the run is in a store" in fetched
    ended(jobs, local, JobState.SUCCEEDED)
    assert unready_references(config, jobs) == [fetched]
    ended(jobs, local, JobState.FAILED)
    assert unready_references(config, jobs) == [fetched], "resolving tells of it"
    with pytest.raises(ConfigError, match="names no result of a job"):
        unready_references({"model": "job:x"}, jobs)


def test_what_is_to_be_fetched_is_told_once_each_with_where_from_and_no_secret(jobs: Jobs) -> None:
    local, stored = (jobs.submit(NewJob({}, name=name, kind="sft")) for name in ("here", "there"))
    for job in (local, stored):
        ended(jobs, job, JobState.SUCCEEDED)
    with jobs.database.transaction() as connection:
        moved = tables.jobs.update().where(tables.jobs.c.id == stored.id)
        connection.execute(moved.values(run_dir="s3://key:hunter2@team/runs/there"))
    words = ["model", "model@best", "model@40", "run_dir", "model@last"]
    config = {"model": f"job:{local.id}/model", "all": [f"job:{stored.id}/{word}" for word in words]}
    told = stored_references(config, jobs)
    assert [text.partition(" of job ")[0] for text in told] == [
        "the last checkpoint", "the best checkpoint", "checkpoint 40", "the whole run"
    ]  # fmt: skip
    assert f" of job {stored.short_id} (there) from s3://" in told[0]
    assert "team/runs/there" in told[0]
    assert "hunter2" not in "".join(told)
    assert stored_references({"model": f"job:{local.id}/model"}, jobs) == []
