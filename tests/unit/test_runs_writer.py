"""Beginning an attempt, events, metrics and ownership."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from runs_builders import CONFIG, begin_run

from mmrl.cli.app import main
from mmrl.errors import ConflictError, RunFailedError
from mmrl.runs.reader import RunReader
from mmrl.runs.writer import RunWriter


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_first_attempt_lays_out_the_run_directory(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "deep" / "run", config_yaml=CONFIG, resume=False)
    writer.close("succeeded")
    run_dir = tmp_path / "deep" / "run"
    assert (run_dir / "config.yaml").read_text() == CONFIG
    assert (run_dir / "attempt-1" / "config.yaml").read_text() == CONFIG
    assert {path.name for path in run_dir.iterdir()} == {"config.yaml", "owner", "attempt-1", "checkpoints"}
    assert {path.name for path in (run_dir / "attempt-1").iterdir()} == {
        "config.yaml",
        "events.jsonl",
        "metrics.jsonl",
        "logs",
        "samples",
    }
    assert [row["state"] for row in lines(run_dir / "attempt-1" / "events.jsonl")] == ["starting", "succeeded"]


def test_an_event_is_on_disk_before_the_writer_closes(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "run")
    writer.event("warning", step=3, message="line one\nline two", path=tmp_path, value=np.float32(0.5))
    row = lines(tmp_path / "run" / "attempt-1" / "events.jsonl")[-1]
    assert row.pop("time").endswith("+00:00")
    assert row == {
        "kind": "warning",
        "step": 3,
        "message": "line one\nline two",
        "path": str(tmp_path),
        "value": 0.5,
    }


def test_metrics_that_are_no_finite_number_are_null_with_one_warning_a_name(tmp_path: Path) -> None:
    writer = begin_run(tmp_path / "run")
    for step in (1, 2):
        writer.metrics(step, {"reward/mean": 0.5, "kl": float("nan"), "loss": float("inf")})
    rows = lines(tmp_path / "run" / "attempt-1" / "metrics.jsonl")
    assert [(row["step"], row["reward/mean"], row["kl"], row["loss"]) for row in rows] == [
        (1, 0.5, None, None),
        (2, 0.5, None, None),
    ]
    warnings = [event.fields for event in RunReader(tmp_path / "run").events() if event.kind == "warning"]
    assert [(warning["step"], warning["value"]) for warning in warnings] == [(1, "nan"), (1, "inf")]
    assert "metric kl is not a finite number" in warnings[0]["message"]


def test_a_metric_may_not_take_the_name_of_a_column(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match="cannot be named 'step'"):
        begin_run(tmp_path / "run").metrics(1, {"step": 1.0})


def test_a_folder_with_a_run_is_refused_unless_resuming(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    writer.metrics(3, {"loss": 1.0})
    writer.close("cancelled")
    with pytest.raises(ConflictError, match=r"holds a run already \(attempt 1, cancelled, step 3\); resume it"):
        RunWriter.create(tmp_path, config_yaml=CONFIG, resume=False)
    assert RunWriter.create(tmp_path, config_yaml=CONFIG, resume=True).attempt == 2


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("mine: 1\n")
    for resume in (False, True):
        with pytest.raises(ConflictError, match="holds files but no run"):
            RunWriter.create(tmp_path, config_yaml=CONFIG, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert (tmp_path / "config.yaml").read_text() == "mine: 1\n"


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(ConflictError, match="is a file"):
        RunWriter.create(tmp_path / "run", config_yaml=CONFIG, resume=True)


def test_the_run_of_another_config_is_not_resumed(tmp_path: Path) -> None:
    begin_run(tmp_path).close("cancelled")
    other = CONFIG.replace("path: tiny", "path: large")
    with pytest.raises(ConflictError, match=r"another config: model\.path is 'tiny' there and 'large' here"):
        RunWriter.create(tmp_path, config_yaml=other, resume=True)
    assert RunReader(tmp_path).attempts() == [1]


def test_a_run_may_be_resumed_with_more_steps_and_says_so(tmp_path: Path) -> None:
    begin_run(tmp_path).close("succeeded")
    longer = CONFIG.replace("steps: 4", "steps: 9")
    RunWriter.create(tmp_path, config_yaml=longer, resume=True).close("succeeded")
    event = next(event for event in RunReader(tmp_path).events() if event.kind == "config_changed")
    assert event.fields["changes"] == {"train.steps": [4, 9]}
    assert RunReader(tmp_path).config()["train"]["steps"] == 9
    assert "steps: 4" in (tmp_path / "attempt-1" / "config.yaml").read_text()


def test_only_the_last_attempt_owns_the_run(tmp_path: Path) -> None:
    first = begin_run(tmp_path)
    assert first.owns()
    second = begin_run(tmp_path)
    assert (first.owns(), second.owns()) == (False, True)
    (tmp_path / "owner").unlink()
    assert not second.owns()


def test_the_files_are_closed_even_when_the_last_line_cannot_be_written(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    writer.close("succeeded")
    with pytest.raises(ValueError, match="closed"):
        writer.event("progress", message="too late")


def test_x10_an_image_in_a_failure_is_logged_as_its_size_and_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the events, on the stream that becomes the log, and so in the database; also without `data:` before it."""
    image = base64.b64encode(np.random.default_rng(0).bytes(30_000)).decode()
    config = tmp_path / "noop.yaml"
    config.write_text(
        "name: probe\nkind: noop\nnoop: {fail_at_step: 1, failure: "
        f"'judge refused data:image/png;base64,{image} and {image[:-4]}, ask again'}}\n"
    )
    assert main(["train", str(config), "--run-dir", str(tmp_path / "run")]) != 0
    told = capsys.readouterr().err
    logged = (tmp_path / "run" / "attempt-1" / "events.jsonl").read_text()
    for text in (told, logged):
        assert image[:200] not in text
        assert len(text) < 3000
        assert "judge refused <base64 of 40022 characters, sha256 " in text
        assert " and <base64 of 39996 characters, sha256 " in text
        assert "ask again" in text
