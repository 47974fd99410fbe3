"""Curves: over steps and over time, with gaps, and side by side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from console_reads import Desk, desk_in
from homes import Home
from job_rows import join, new_job, start

from console.services.comparing import ABSENT, config_differences, final_metrics
from console.services.curves import MAX_POINTS, StepClock, read_curves, smoothed, with_gaps
from console.services.metric_words import GROUPS, in_groups, words_of
from mmrl.jobs.records import Job, MetricPoint
from mmrl.jobs.retry import Failure

Homes = Callable[[str], Home]


def _resumed(desk: Desk) -> Job:
    """Attempt 1 reaches step 30 and is resumed from step 20; each step takes an hour in 1 and two hours in 2."""
    job = desk.jobs.submit(new_job("resumed"))
    worker = join(desk.database)
    lease = start(worker)
    worker.progress(lease, 30, 40, first_step=0)
    worker.add_metrics(lease, [row for step in range(1, 31) for row in _rows(step, 3600.0, 1.0)])
    worker.fail(lease, Failure("killed", "signal 9"))
    worker.release(lease)
    desk.jobs.resume(job.id) if desk.jobs.get(job.id).state == "paused" else None
    with desk.database.transaction() as connection:
        from mmrl.jobs import tables

        connection.execute(tables.jobs.update().where(tables.jobs.c.id == job.id).values(available_at=0.0))
    again = start(worker)
    worker.progress(again, 25, 40, first_step=20)
    worker.add_metrics(again, [row for step in range(21, 26) for row in _rows(step, 7200.0, 2.0)])
    return desk.jobs.get(job.id)


def _rows(step: int, seconds: float, loss: float) -> list[tuple[int, str, float | None]]:
    return [(step, "timing_s/step", seconds), (step, "loss", None if step == 5 else loss)]


def test_attempts_are_one_line_and_what_was_left_behind_takes_no_time(fresh_home: Homes) -> None:
    with desk_in(fresh_home("empty")) as desk:
        job = _resumed(desk)
        curve = read_curves(desk.jobs, [job], ["loss"], axis="time").curves["loss"][0]
        assert [point.step for point in curve.points] == list(range(1, 26))
        assert [point.value for point in curve.points][:6] == [1.0, 1.0, 1.0, 1.0, None, 1.0]
        assert [point.x for point in curve.points[-6:]] == pytest.approx([20, 22, 24, 26, 28, 30])
        assert curve.last is not None
        assert (curve.last.step, curve.last.value) == (25, 2.0)


def test_a_run_that_times_no_step_is_named_and_not_drawn_over_time(fresh_home: Homes) -> None:
    with desk_in(fresh_home("empty")) as desk:
        desk.jobs.submit(new_job("untimed"))
        worker = join(desk.database)
        lease = start(worker)
        worker.add_metrics(lease, [(1, "loss", 1.0)])
        job = desk.jobs.get(lease.job_id)
        found = read_curves(desk.jobs, [job], ["loss"], axis="time")
        assert (found.curves, found.without_time) == ({}, (job,))
        assert list(read_curves(desk.jobs, [job], ["loss", "nothing"]).curves) == ["loss"]


def test_missing_steps_break_the_line_and_nothing_becomes_zero() -> None:
    points = [MetricPoint(step, 1.0, 1.0, 1.0, 1) for step in (1, 2, 3, 4, 20, 21)]
    found = with_gaps(points)
    assert [(point.step, point.value) for point in found] == [
        (1, 1.0),
        (2, 1.0),
        (3, 1.0),
        (4, 1.0),
        (12, None),
        (20, 1.0),
        (21, 1.0),
    ]
    sparse = [MetricPoint(step, 1.0, 1.0, 1.0, 1) for step in (0, 25, 50, 60)]
    assert with_gaps(sparse) == sparse


def test_smoothing_is_an_exponential_mean_without_the_pull_of_its_start() -> None:
    assert smoothed([2.0, 4.0, None, 4.0], 0.5) == [2.0, pytest.approx(10 / 3), None, pytest.approx(26 / 7)]
    assert smoothed([1.0, 5.0], 0.0) == [1.0, 5.0]


def test_no_curve_has_more_than_a_few_hundred_points(shared_home: Homes) -> None:
    with desk_in(shared_home("large")) as desk:
        job = desk.job("running")
        curve = read_curves(desk.jobs, [job], ["reward/mean"]).curves["reward/mean"][0]
        assert 200 < len(curve.points) <= MAX_POINTS
        assert curve.is_thinned


def test_time_between_two_known_steps_is_in_proportion() -> None:
    clock = StepClock((10, 20), (1.0, 3.0))
    assert [clock.at(step) for step in (0, 5, 10, 15, 20, 30)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_only_settings_that_differ_are_told_and_of_each_run(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        runs = [desk.job(name) for name in ("succeeded", "running", "failed")]
        found = config_differences(runs)
        assert found.rows["optim.lr"][1] != found.rows["optim.lr"][0] == found.rows["optim.lr"][2]
        assert found.rows["algorithm.group_size"][1] == "4"
        assert found.rows["seed"] == ("0", "0", "3")
        assert found.rows["name"] == ("succeeded", "running", "failed")
        assert "model.path" not in found.rows
        assert found.unreadable == ()


def test_a_config_that_is_refused_today_is_named_and_keeps_no_other_from_it(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        runs = [desk.job(name) for name in ("succeeded", "no-worker", "running")]
        found = config_differences(runs)
        assert [job.name for job in found.runs] == ["succeeded", "running"]
        assert [(job.name, "noop.seconds" in why) for job, why in found.unreadable] == [("no-worker", True)]
        assert ABSENT not in found.rows["optim.lr"]


def test_final_metrics_are_the_last_ones_of_each_run(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        rows = final_metrics(desk.jobs, [desk.job("succeeded"), desk.job("paused"), desk.job("draft")]).rows
        last = rows["eval/reward"]
        assert [None if each is None else each[1] for each in last][-1] is None
        assert last[0] is not None
        assert last[0][1] == 100
        assert rows["reward/mean"][1] is not None
        assert rows["reward/mean"][1][1] == 40


def test_every_metric_has_a_group_and_a_sentence_of_its_own(shared_home: Homes) -> None:
    with desk_in(shared_home("small")) as desk:
        keys = desk.jobs.metric_keys(desk.home.jobs["succeeded"])
        grouped = in_groups(keys)
        assert sorted(key for each in grouped.values() for key in each) == sorted(keys)
        assert list(grouped) == [group for group in GROUPS if group in grouped]
        for key in keys:
            assert "none of mmrl's own" not in words_of(key).sentence, key


@pytest.mark.parametrize(
    ("key", "group", "sentence"),
    [
        ("reward/exact/mean", "Reward", "Mean of the reward exact before its weight."),
        ("timing_s/rollout", "Time", "Sampling the responses."),
        ("sync/image/logprob_gap_max", "Sampler check", "of prompts with images"),
        ("sync/logprob_gap_mean", "Sampler check", "log-probability of a token."),
        ("eval/pass@8", "Evaluation", "one of 8 responses is right"),
        ("my/own", "Other", "none of mmrl's own metrics"),
        ("reward/{x}", "Reward", "Mean of the reward {x}."),
    ],
)
def test_words_follow_the_name(key: str, group: str, sentence: str) -> None:
    words = words_of(key)
    assert words.group == group
    assert sentence in words.sentence
