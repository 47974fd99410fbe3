"""Which checkpoint of a run the first look calls its best."""

from __future__ import annotations

from mmrl.jobs.glance import best_of
from mmrl.jobs.records import CheckpointRow


def test_of_equal_checkpoints_the_earlier_is_the_best_as_on_the_page_of_the_run() -> None:
    rows = [
        CheckpointRow(step, "", metrics={"eval/reward": value}) for step, value in ((4, 0.5), (8, 0.74), (16, 0.74))
    ]
    best, lowest = best_of(rows, "eval/reward", "max"), best_of(rows, "eval/reward", "min")
    assert (best and best.step, lowest and lowest.step) == (8, 4)
    level = best_of(rows[1:], "eval/reward", "min")
    assert level is not None
    assert level.step == 8
    assert best_of(rows, "eval/accuracy", "max") is None
