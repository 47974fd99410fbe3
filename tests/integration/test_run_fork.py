"""`mmrl run --from CHECKPOINT`: a fork as a job, from the words on the command line to the new run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from learning import run_config

from mmrl.cli.app import main
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.runs.layout import checkpoint_dir
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train


@pytest.fixture(scope="module")
def trunk(digits_home: Path, sqlite_template: Path) -> Path:
    """Three steps of SFT with a checkpoint of each, in a home whose job database is empty."""
    (digits_home / "mmrl.db").write_bytes(sqlite_template.read_bytes())
    config = run_config(
        digits_home / "base",
        "digits-which@train",
        steps=3,
        kind="sft",
        sft={"batch_size": 4},
        eval={"every": 0, "at_start": False},
        checkpoint={"every": 1, "keep": 3, "best": None},
    )
    run_dir = digits_home / "runs" / "trunk"
    train(config.model_copy(update={"name": "trunk"}), run_dir=run_dir, progress=make_progress("quiet"))
    return run_dir


@pytest.fixture(autouse=True)
def beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MMRL_DATABASE_URL", raising=False)
    monkeypatch.setenv("MMRL_JOBS_POLL_S", "0.1")


def test_a_fork_is_a_job_that_goes_on_at_the_checkpoint_with_the_settings_given(
    trunk: Path, digits_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--from", "trunk@2", "name=gentler", "optim.lr=0.0001", "train.steps=4"]
    assert main(["run", *words, "--json"]) == 0
    out, told = capsys.readouterr()
    assert "train.steps: 3 -> 4" in told
    run_dir = Path(json.loads(out)["run_dir"])
    with Database.open(f"sqlite:///{digits_home}/mmrl.db") as database:
        job = Jobs(database).get(json.loads(out)["job"])
    assert (job.name, job.kind, str(job.state)) == ("gentler", "sft", "succeeded")
    assert job.resume_checkpoint == str(checkpoint_dir(trunk, 2))
    reader = RunReader(run_dir)
    assert [row.step for row in reader.metrics(["sft/loss"])] == [3, 4]
    assert all(row.values["actor/lr"] <= 1e-4 for row in reader.metrics(["actor/lr"]))
    fork = json.loads((run_dir / "fork.json").read_text())
    assert (fork["run"], fork["step"], fork["changes"]["optim.lr"]) == (str(trunk), 2, [0.001, 0.0001])
    # Its optimiser and data are those of the trunk: without a change its third step is the trunk's third.
    assert main(["run", "--from", str(checkpoint_dir(trunk, 2)), "--json"]) == 0
    same = RunReader(Path(json.loads(capsys.readouterr().out)["run_dir"]))
    ((mine,), (theirs,)) = (
        [row.values["sft/loss"] for row in each.metrics(["sft/loss"]) if row.step == 3]
        for each in (same, RunReader(trunk))
    )
    assert mine == theirs


def test_a_fork_of_nothing_and_one_of_another_model_are_refused(
    trunk: Path, digits_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--from", "trunk@7"]) == 3
    assert "it has those of 1, 2, 3" in capsys.readouterr().err
    assert main(["run", "--from", str(digits_home / "base")]) == 2
    assert "set model.path=" in capsys.readouterr().err
    assert main(["run", "--from", "trunk@2", "name=other", "model.path=elsewhere"]) == 5
    assert "and 'elsewhere' here. To begin from its weights alone, set model.path" in capsys.readouterr().err
    with Database.open(f"sqlite:///{digits_home}/mmrl.db") as database:
        assert not Jobs(database).list(name="other"), "refused before it is a job"
