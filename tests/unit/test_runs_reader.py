"""Attempts joined along the surviving line, torn lines, state, checkpoints, finding a run."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from runs_builders import begin_run, group

from mmrl.data.images import ImageStore
from mmrl.errors import DataError, NotFoundError, RunFailedError
from mmrl.runs.layout import new_run_dir, resolve_run
from mmrl.runs.reader import RunReader
from mmrl.runs.writer import RunWriter


def write_steps(writer: RunWriter, steps: range, value: float) -> None:
    for step in steps:
        writer.metrics(step, {"loss": value})


def test_a_resumed_attempt_takes_the_place_of_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    first = begin_run(tmp_path)
    write_steps(first, range(1, 6), 1.0)
    write_steps(begin_run(tmp_path, step=3), range(4, 5), 2.0)
    rows = RunReader(tmp_path).metrics()
    assert [(row.step, row.attempt, row.values["loss"]) for row in rows] == [
        (1, 1, 1.0),
        (2, 1, 1.0),
        (3, 1, 1.0),
        (4, 2, 2.0),
    ]


def test_a_third_attempt_may_go_back_behind_the_second(tmp_path: Path) -> None:
    write_steps(begin_run(tmp_path), range(1, 6), 1.0)
    write_steps(begin_run(tmp_path, step=4), range(5, 8), 2.0)
    write_steps(begin_run(tmp_path, step=2), range(3, 5), 3.0)
    assert [(row.step, row.attempt) for row in RunReader(tmp_path).metrics()] == [(1, 1), (2, 1), (3, 3), (4, 3)]


def test_an_attempt_that_died_before_its_loop_takes_the_place_of_nothing(tmp_path: Path) -> None:
    write_steps(begin_run(tmp_path), range(1, 4), 1.0)
    RunWriter.create(tmp_path, config_yaml=(tmp_path / "config.yaml").read_text(), resume=True)
    assert [row.step for row in RunReader(tmp_path).metrics()] == [1, 2, 3]
    assert RunReader(tmp_path).state().state == "starting"
    assert RunReader(tmp_path).state().step == 3


def test_without_a_begin_event_the_first_metrics_tell_where_an_attempt_began(tmp_path: Path) -> None:
    write_steps(begin_run(tmp_path), range(1, 6), 1.0)
    second = RunWriter.create(tmp_path, config_yaml=(tmp_path / "config.yaml").read_text(), resume=True)
    write_steps(second, range(3, 4), 2.0)
    assert [(row.step, row.values["loss"]) for row in RunReader(tmp_path).metrics()] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_rows_of_one_step_are_joined_and_the_later_value_wins(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    writer.metrics(1, {"loss": 1.0, "kl": 0.1})
    begin_run(tmp_path, step=1).metrics(1, {"loss": 2.0, "eval/reward": 0.5})
    (row,) = RunReader(tmp_path).metrics()
    assert (row.attempt, row.values) == (2, {"loss": 2.0, "kl": 0.1, "eval/reward": 0.5})


def test_metrics_can_be_read_by_name(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    writer.metrics(1, {"loss": 1.0})
    writer.metrics(2, {"loss": 1.0, "eval/reward": 0.5})
    assert [(row.step, row.values) for row in RunReader(tmp_path).metrics(["eval/reward"])] == [
        (2, {"eval/reward": 0.5})
    ]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    write_steps(writer, range(1, 3), 1.0)
    for name in ("metrics.jsonl", "events.jsonl"):
        with (tmp_path / "attempt-1" / name).open("a") as file:
            file.write('{"step": 3, "time": "2026-01-0')
    reader = RunReader(tmp_path)
    assert [row.step for row in reader.metrics()] == [1, 2]
    assert [event.kind for event in reader.events()] == ["state", "state"]


def test_a_broken_line_before_the_last_is_named(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    path = tmp_path / "attempt-1" / "metrics.jsonl"
    path.write_text("{oops\n")
    writer.metrics(1, {"loss": 1.0})
    with pytest.raises(DataError, match=r"metrics\.jsonl:1: not a JSON object"):
        RunReader(tmp_path).metrics()


def test_the_state_tells_step_total_and_the_first_failure(tmp_path: Path) -> None:
    writer = begin_run(tmp_path)
    write_steps(writer, range(1, 3), 1.0)
    assert (RunReader(tmp_path).state().state, RunReader(tmp_path).state().failure) == ("running", None)
    writer.event("failure", message="the disk is full")
    writer.event("failure", message="and then that")
    writer.close("failed")
    state = RunReader(tmp_path).state()
    assert (state.state, state.attempt, state.step, state.total_steps) == ("failed", 1, 2, 4)
    assert state.failure == "the disk is full"
    assert state.started_at is not None
    assert state.updated_at is not None
    assert state.started_at <= state.updated_at


def test_half_checkpoints_are_left_out(tmp_path: Path) -> None:
    begin_run(tmp_path)
    root = tmp_path / "checkpoints"
    for name in ("step-000100", "step-000020", "step-000030", ".step-000040.7.tmp", "notes"):
        (root / name).mkdir()
    for step in (100, 20):
        manifest = {"step": step, "metrics": {"eval/reward": 0.5}, "files": {"a": {"bytes": 3}, "b": {"bytes": 4}}}
        (root / f"step-{step:06d}" / "manifest.json").write_text(json.dumps(manifest))
    (root / "step-000030" / "manifest.json").write_text('{"step": 30, "fi')
    checkpoints = RunReader(tmp_path).checkpoints()
    assert [(point.step, point.num_bytes, point.path.name) for point in checkpoints] == [
        (20, 7, "step-000020"),
        (100, 7, "step-000100"),
    ]
    assert checkpoints[0].metrics == {"eval/reward": 0.5}


def test_samples_of_a_resumed_run_follow_the_surviving_line(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    run_dir = tmp_path / "run"
    first = begin_run(run_dir)
    for step in (1, 2, 3):
        first.samples(step, "train", [group([("first", 1.0)])], store_path=store.path)
    second = begin_run(run_dir, step=1)
    second.samples(2, "train", [group([("second", 1.0)])], store_path=store.path)
    reader = RunReader(run_dir)
    assert reader.steps("train") == [1, 2]
    assert [reader.sample_groups(step, "train")[0].responses[0].text for step in (1, 2)] == ["first", "second"]


def test_a_reader_of_no_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is not a run"):
        RunReader(tmp_path)


def test_a_run_is_found_by_path_and_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    begin_run(tmp_path / "runs" / "digits-grpo")
    assert resolve_run("digits-grpo") == tmp_path / "runs" / "digits-grpo"
    assert resolve_run(str(tmp_path / "runs" / "digits-grpo")) == tmp_path / "runs" / "digits-grpo"


def test_run_directories_that_are_made_in_one_second_are_each_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: new_run_dir("数" * 500), range(16)))
    assert len(set(made)) == 16
    assert {folder for folder in made if folder.is_dir() and folder.parent == tmp_path / "runs"} == set(made)


def test_a_place_where_no_run_directory_can_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    (tmp_path / "runs").symlink_to(tmp_path / "gone")
    with pytest.raises(RunFailedError, match=f"cannot write {tmp_path}/runs/digits-"):
        new_run_dir("digits")


def test_an_unknown_run_brings_the_nearest_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="there are no runs there yet"):
        resolve_run("digits")
    begin_run(tmp_path / "runs" / "digits-grpo")
    with pytest.raises(NotFoundError, match="nearest: digits-grpo"):
        resolve_run("digit-grpo")
    with pytest.raises(NotFoundError, match="runs there: digits-grpo"):
        resolve_run("xyzzy")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="is not a run: it holds no attempt-1 folder"):
        resolve_run(str(tmp_path / "empty"))
