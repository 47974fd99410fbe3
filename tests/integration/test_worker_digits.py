"""A digits run as a job: submitted from a shell, followed, cancelled in the middle, resumed, as good as unbroken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_site import Site, open_site
from learning import run, run_config, warm_model

from mmrl.config import RunConfig, dump_yaml
from mmrl.jobs.states import JobState
from mmrl.runs.reader import RunReader

STEPS = 8


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("worker-digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def config(home: Path) -> RunConfig:
    model = warm_model(home / "model", "digits-which", steps=40)
    found = run_config(
        model,
        "digits-which@train",
        steps=STEPS,
        eval={"every": 0, "at_start": False, "max_samples": 60},
        checkpoint={"every": 3, "keep": 5},
    )
    return found.model_copy(update={"data": found.data.model_copy(update={"eval": "digits-which@validation"})})


@pytest.fixture(scope="module")
def unbroken(home: Path, config: RunConfig) -> dict[str, float]:
    return run(config, home / "unbroken").metrics


def test_a_digits_run_cancelled_and_resumed_is_as_good_as_an_unbroken_one(
    home: Path, config: RunConfig, unbroken: dict[str, float], sqlite_template: Path
) -> None:
    (home / "mmrl.db").write_bytes(sqlite_template.read_bytes())
    with open_site(f"sqlite:///{home}/mmrl.db", home) as site:
        check_as_a_job(site, config, unbroken)


@pytest.mark.slow
@pytest.mark.postgres
def test_the_same_with_postgresql(
    home: Path, config: RunConfig, unbroken: dict[str, float], postgres_server: object
) -> None:
    from postgres_server import TEMPLATE

    with open_site(postgres_server.create_database(template=TEMPLATE), home) as site:  # type: ignore[attr-defined]
        check_as_a_job(site, config, unbroken)


@pytest.mark.slow
@pytest.mark.ray
def test_the_same_through_the_ray_jobs_api(
    home: Path, config: RunConfig, unbroken: dict[str, float], sqlite_template: Path
) -> None:
    from ray_head import RayHead

    (home / "mmrl.db").write_bytes(sqlite_template.read_bytes())
    head = RayHead.begin()
    try:
        with open_site(f"sqlite:///{home}/mmrl.db", home) as site:
            check_as_a_job(site, config, unbroken, "--backend", "ray", worker=("--ray-address", head.address))
    finally:
        head.end()


def check_as_a_job(
    site: Site, config: RunConfig, unbroken: dict[str, float], *words: str, worker: tuple[str, ...] = ()
) -> None:
    file = site.home / "digits.yaml"
    file.write_text(dump_yaml(config))
    job = site.jobs.get(shell("job", "submit", str(file), *words).strip())
    site.add(job)
    site.worker(*worker)
    with (site.home / "followed").open("w") as out:
        follow = subprocess.Popen([sys.executable, "-m", "mmrl", "job", "logs", job.id, "-f"], stdout=out, stderr=out)
        path = Path(job.run_dir) / "attempt-1" / "metrics.jsonl"
        site.until(lambda: path.exists() and path.read_bytes().count(b"\n") >= 3, timeout_s=240)
        shell("job", "cancel", job.id)
        cancelled = site.wait(job, JobState.CANCELLED, timeout_s=120)
        assert follow.wait(timeout=60) == 7
    assert (cancelled.exit_code, site.trainer(job)) == (7, [])
    reached = RunReader(Path(job.run_dir)).state().step
    assert 0 < reached < STEPS, "it was cancelled in the middle"

    [told] = json.loads(shell("job", "resume", job.id, "--json"))
    child = site.add(site.jobs.get(told["id"]))
    assert child.parent_job_id == job.id
    assert f"step-{reached:06d}" in str(child.resume_checkpoint), "with a checkpoint of the step that was under way"
    done = site.wait(child, JobState.SUCCEEDED, timeout_s=240)
    rows = RunReader(Path(done.run_dir)).metrics()
    assert [row.step for row in rows] == list(range(reached + 1, STEPS + 1))
    assert rows[-1].values["eval/exact"] == pytest.approx(unbroken["eval/exact"], abs=1e-9)
    assert rows[-1].values["reward/mean"] == pytest.approx(unbroken["reward/mean"], abs=1e-6)
    indexed = site.jobs.metrics(child.id, ["eval/exact"])["eval/exact"]
    assert indexed[-1].value == rows[-1].values["eval/exact"]


def shell(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "mmrl", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
