"""`mmrl job submit`: what a job needs, where it runs, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_commands import Run, submitted
from runs_builders import begin_run


def test_submit_prints_the_id_alone_on_stdout_and_why_it_waits_on_stderr(config: Path, mmrl: Run) -> None:
    code, out, err = mmrl("job", "submit", config)
    assert code == 0
    assert len(out.strip()) == 36
    assert "no worker for pool default" in err
    assert "mmrl worker start" in err


def test_the_same_key_gives_the_same_job_and_another_config_is_a_conflict(config: Path, mmrl: Run) -> None:
    first = submitted(mmrl, config, "--idempotency-key", "nightly")
    assert submitted(mmrl, config, "--idempotency-key", "nightly")["id"] == first["id"]
    code, _, err = mmrl("job", "submit", config, "noop.steps=9", "--idempotency-key", "nightly")
    assert code == 5
    assert "nightly" in err


def test_needs_follow_from_the_placement_unless_they_are_said(config: Path, mmrl: Run) -> None:
    from mmrl.jobs.from_config import Needs, needs_of

    ray = {"executor": "ray", "address": None, "pools": {"a": {"workers": 3, "cpus_per_worker": 2.0}}}
    for pool in ray["pools"].values():  # type: ignore[attr-defined]
        pool["gpus_per_worker"] = 0.5
    assert needs_of({"placement": ray}) == Needs(6, 2)
    assert needs_of({"placement": {**ray, "address": "auto"}}) == Needs(1, 0)
    assert needs_of({}) == Needs(1, 0)
    job = submitted(mmrl, config, "--cpus", 4, "--gpus", 1)
    assert (job["cpus"], job["gpus"]) == (4, 1)


TRAINING = """\
name: digits
model: {path: tiny}
data: {train: digits}
reward: [{type: judge, model: m, url: "http://127.0.0.1:1/v1", api_key: SECRET}]
"""


def test_x08_a_secret_in_a_job_is_refused_by_its_key_and_shown_nowhere(config: Path, mmrl: Run, tmp_path: Path) -> None:
    """A literal secret never reaches the database; a reference does."""
    literal = "sk-very-secret-0123456789abcdef"
    path = tmp_path / "judge.yaml"
    path.write_text(TRAINING.replace("SECRET", literal))
    code, out, err = mmrl("job", "submit", path)
    assert code == 2
    assert "reward.0.api_key" in err
    assert "env:NAME" in err
    assert literal not in out + err
    assert json.loads(mmrl("job", "list", "--json")[1]) == []
    path.write_text(TRAINING.replace("SECRET", "env:JUDGE_KEY"))
    job = submitted(mmrl, path)
    assert json.loads(mmrl("job", "show", job["id"], "--json")[1])["config"]["reward"][0]["api_key"] == "env:JUDGE_KEY"
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or literal.encode() not in file.read_bytes()


def test_a_run_directory_of_ones_own_is_made_whole(config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert submitted(mmrl, config, "--run-dir", "here")["run_dir"] == str(config.parent / "here")
    assert submitted(mmrl, config, "--run-dir", "s3://team/here")["run_dir"] == "s3://team/here"


def test_runs_kept_below_a_relative_folder_are_found_from_every_other_one(
    config: Path, mmrl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(config.parent)
    monkeypatch.setenv("MMRL_RUNS_URL", "here/")
    assert Path(submitted(mmrl, config)["run_dir"]).parent == config.parent / "here"


def test_a_folder_that_holds_a_run_is_no_run_directory_for_a_job(config: Path, mmrl: Run) -> None:
    begin_run(config.parent / "mine")
    code, _, err = mmrl("job", "submit", config, "--run-dir", config.parent / "mine")
    assert code == 5
    assert f"{config.parent}/mine holds a run already" in err
    assert json.loads(mmrl("job", "list", "--json")[1]) == []


@pytest.mark.parametrize(
    ("first", "second"), [("/runs/x", "/runs/y/../x/"), ("s3://team/x", "s3://team/x/"), ("/runs/x", "/runs//./x")]
)
def test_one_run_directory_written_in_two_ways_is_refused_to_a_second_job(
    first: str, second: str, config: Path, mmrl: Run
) -> None:
    job = submitted(mmrl, config, "--run-dir", first)
    code, _, err = mmrl("job", "submit", config, "--run-dir", second)
    assert code == 5
    assert f"{first} is the run directory of job {job['id']}" in err


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "CONFIG", "--name", ""),
        ("submit", "CONFIG", "--priority", 10**20),
        ("submit", "CONFIG", "--delay", "1e300"),
        ("submit", "CONFIG", "--cpus", 10**12),
        ("submit", "CONFIG", "--run-dir", ""),
        ("submit", "CONFIG", "--run-dir", "a" * 300),
        ("list", "--limit", 10**30),
    ],
)
def test_values_beyond_every_bound_are_wrong_use_and_no_bug(words: tuple[Any, ...], config: Path, mmrl: Run) -> None:
    code, out, err = mmrl("job", *(config if word == "CONFIG" else word for word in words))
    assert (code, out) == (2, "")
    assert "bug" not in err
    assert json.loads(mmrl("job", "list", "--json")[1]) == []
