"""Runs in a store, seen from machines that never had them: their logs, and what later jobs take of them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_rows import claim, join
from job_site import Site, open_sqlite_site
from object_store import s3_server

from mmrl.cli.app import main
from mmrl.cli.job_follow import Follower
from mmrl.config.secrets import redact
from mmrl.errors import NotFoundError, RunFailedError
from mmrl.jobs.index import IndexBatch
from mmrl.jobs.records import CheckpointRow, Job
from mmrl.jobs.references import resolve_references
from mmrl.jobs.states import JobState
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs import run_logs
from mmrl.runs.checkpoint_refs import resolve_model
from mmrl.runs.config_file import identity_conflict
from mmrl.runs.logs import read_after, read_before, search_before, start_of_last_lines
from mmrl.runs.mirror import Mirror, local_folder
from mmrl.runs.run_logs import RunLogs


@pytest.fixture
def site(tmp_path: Path, sqlite_template: Path) -> Iterator[Site]:
    with open_sqlite_site(sqlite_template, tmp_path) as site:
        yield site


def ran_elsewhere(site: Site, tmp_path: Path, *, ends: JobState = JobState.SUCCEEDED, **noop: object) -> Job:
    """A job whose run lies in a store; the machine that ran it is gone."""
    job = site.submit(steps=4, checkpoint_every=2, job={"run_dir": f"file://{tmp_path}/store/run"}, **noop)
    site.worker("--until-idle", MMRL_HOME=str(tmp_path / "first"))
    done = site.wait(job, ends)
    site.stop_workers()
    shutil.rmtree(tmp_path / "first")
    return done


def test_what_a_later_job_takes_of_a_run_in_a_store_is_fetched_by_whichever_machine_starts_it(
    site: Site, tmp_path: Path
) -> None:
    job = ran_elsewhere(site, tmp_path)
    second = tmp_path / "second"
    taker = site.submit(name="taker", steps=1, exit_code=6, failure=f"job:{job.id}/model@2", job={"after": (job.id,)})
    site.worker("--until-idle", MMRL_HOME=str(second))
    told = site.wait(taker, JobState.FAILED).error_message
    assert told is not None
    assert Path(told).parts[-3:] == ("checkpoints", "step-000002", "model")
    assert (Path(told) / "weights.bin").is_file()
    assert second in Path(told).parents
    assert not Path(told).parents[1].joinpath("step-000004").exists(), "nothing but what was asked for"


def test_a_home_told_as_a_relative_path_is_the_same_for_the_trainer(site: Site, tmp_path: Path) -> None:
    """It runs in another folder than its worker."""
    job = site.submit(steps=2, job={"run_dir": f"file://{tmp_path}/store/run"})
    site.worker("--until-idle", MMRL_HOME="other")
    assert site.wait(job, JobState.SUCCEEDED).step == 2
    assert (site.home / "other" / "mirrors").is_dir()


def test_references_and_names_of_models_know_what_a_store_has(site: Site, tmp_path: Path) -> None:
    job = ran_elsewhere(site, tmp_path)
    folder = local_folder(job.run_dir)
    assert resolve_model(f"{job.run_dir}@2").checkpoint == folder / "checkpoints" / "step-000002"
    assert resolve_model(f"{job.run_dir}/checkpoints/step-000004").step == 4
    with pytest.raises(NotFoundError, match="has no checkpoint of step 3; it has those of 2, 4"):
        resolve_references({"path": f"job:{job.id}/model@3"}, site.jobs)
    found = resolve_references({"path": f"job:{job.id}/run_dir"}, site.jobs)
    assert found == {"path": str(folder)}
    assert (folder / "attempt-1" / "metrics.jsonl").read_bytes().count(b"\n") == 4
    with pytest.raises(NotFoundError, match="has no whole checkpoint"):
        resolve_model(f"file://{tmp_path}/store/nothing@best")


def test_checkpoints_that_are_not_here_yet_are_not_gone(site: Site, tmp_path: Path) -> None:
    """A run in a store goes on on another machine: until its trainer has fetched it, nothing of it is there."""
    site.submit(job={"run_dir": f"file://{tmp_path}/store/run"})
    leases = join(site.database)
    lease = claim(leases)
    leases.index(lease, IndexBatch(checkpoints=[CheckpointRow(2, "/elsewhere/checkpoints/step-000002")]))
    folder = RunFolder(tmp_path / "here", 2)
    indexer = Indexer(leases, folder)

    def states() -> list[str]:
        return [row.state for row in site.jobs.checkpoints(lease.job_id)]

    indexer.look(lease)
    indexer.finish(lease)
    assert states() == ["complete"], "also where the store did not answer, and the attempt ends before it began"
    folder.attempt_dir.mkdir(parents=True)
    (folder.attempt_dir / "events.jsonl").touch()
    indexer.look(lease)
    assert states() == [], "what its retention removed is told as deleted"


def test_a_model_fetched_to_another_home_is_the_same_model() -> None:
    """A run that goes on on another machine is not refused for the place of its base model there."""
    model = "model: {path: %s/mirrors/sft-0123456789ab/checkpoints/step-000010/model}"
    assert identity_conflict(model % "/home/ann/.mmrl", model % "/srv/mmrl") is None
    other = model.replace("000010", "000020")
    assert "model.path" in str(identity_conflict(model % "/home/ann/.mmrl", other % "/srv/mmrl"))


def test_the_log_of_a_run_in_a_store_is_printed_on_any_machine_with_its_last_words(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ran_elsewhere(site, tmp_path, ends=JobState.FAILED, exit_code=6, failure="it was told to")
    assert not local_folder(job.run_dir).exists()
    assert main(["job", "logs", job.id]) == 0
    whole = capsys.readouterr().out
    assert "step 4/4" in whole
    assert whole.endswith("\n")
    assert "it was told to" in whole, "which the trainer writes after its own mirror has ended"
    assert main(["job", "logs", job.id, "--tail", "1"]) == 0
    assert capsys.readouterr().out == whole.splitlines(keepends=True)[-1]
    assert main(["job", "logs", "-f", job.id]) == 6
    told = capsys.readouterr()
    assert told.out == whole
    assert main(["job", "logs", job.id, "--attempt", "2"]) == 3
    assert "attempts there: 1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["file", "s3"])
def test_a_log_in_parts_reads_like_the_file_that_it_was(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if kind == "s3":
        server = s3_server(monkeypatch, "team")
        server.__enter__()
        request.addfinalizer(lambda: server.__exit__(None, None, None))
    address = "s3://team/runs/x" if kind == "s3" else f"file://{tmp_path}/store/x"
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "a"))
    path = local_folder(address) / "attempt-1" / "logs" / "stderr.log"
    path.parent.mkdir(parents=True)
    mirror = Mirror(local_folder(address), address)
    for block in range(3):
        with path.open("a") as file:
            file.writelines(f"line {block}.{index} ☃\n" for index in range(2000))
        mirror.push()
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "b"))
    [file] = RunLogs(address).files(1)
    assert (file.name, file.num_bytes) == ("stderr.log", path.stat().st_size)
    assert str(file.source) == redact(f"{address}/attempt-1/logs/stderr.log")
    with file.source.open("rb") as content:
        assert content.read() == path.read_bytes()
    for end in (None, 30_000, 70_001):
        assert read_before(file.source, end) == read_before(path, end)
    assert read_after(file.source, 25_000) == read_after(path, 25_000)
    assert [start_of_last_lines(file.source, n) for n in (1, 3000)] == [start_of_last_lines(path, n) for n in (1, 3000)]
    assert search_before(file.source, "LINE 1.7 ") == search_before(path, "line 1.7 ")


def test_of_a_log_here_and_in_the_store_the_longer_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"file://{tmp_path}/store/x"
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "a"))
    path = local_folder(address) / "attempt-1" / "logs" / "stderr.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\n")
    Mirror(local_folder(address), address).push()
    path.write_text("one\ntwo\n")
    assert RunLogs(address).files(1)[0].source == path
    path.write_text("")
    assert RunLogs(address).files(1)[0].num_bytes == 4


def test_a_store_that_is_away_stops_nobody_from_following_what_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `mmrl run` does: its run goes on without the store, and so does what it prints."""

    def away(*_: object) -> None:
        raise OSError("connection refused")

    address = f"file://{tmp_path}/store/x"
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "a"))
    monkeypatch.setattr(run_logs, "Store", away)
    with pytest.raises(RunFailedError, match="cannot be read: connection refused"):
        RunLogs(address).files(1)
    path = local_folder(address) / "attempt-1" / "logs" / "stderr.log"
    path.parent.mkdir(parents=True)
    path.write_text("one\n")
    assert [file.source for file in RunLogs(address).files(1, is_over=True)] == [path]


def test_following_a_run_in_a_store_that_is_away_is_told_once_and_goes_on(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = site.submit(steps=1, job={"run_dir": f"file://{tmp_path}/store/run"})
    lease = claim(join(site.database))
    tries = iter(range(9))
    real = run_logs.Store

    def comes_back(address: str) -> object:
        if next(tries) < 3:
            raise OSError("connection refused")
        (tmp_path / "store" / "run" / "attempt-1" / "logs").mkdir(parents=True, exist_ok=True)
        (tmp_path / "store" / "run" / "attempt-1" / "logs" / "stderr.log.part-000000000000").write_text("back\n")
        return real(address)

    monkeypatch.setattr(run_logs, "Store", comes_back)
    monkeypatch.setattr(run_logs, "FRESH_S", 0.0)
    rounds = iter(range(6))
    out = io.StringIO()
    Follower(site.jobs, job.id, out=out, poll_s=0.0).run(until=lambda: next(rounds) == 5)
    assert (out.getvalue(), lease.attempt) == ("back\n", 1)
    assert capsys.readouterr().err.count("it is tried again") == 1
