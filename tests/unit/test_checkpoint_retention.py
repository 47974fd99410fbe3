"""Which checkpoints are kept: the newest, every so many steps, the best either way, pinned ones; and room for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmrl.config.checkpoint import CheckpointConfig
from mmrl.errors import RunFailedError
from mmrl.runs.pins import pin_checkpoint
from mmrl.runs.reader import read_checkpoints
from mmrl.trainer import disk_room, retention
from mmrl.trainer.disk_room import check_room, room_for_next
from mmrl.trainer.retention import prune


def write(run_dir: Path, step: int, **metrics: float) -> Path:
    """A checkpoint with one file of 8 bytes."""
    folder = run_dir / "checkpoints" / f"step-{step:06d}"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"12345678")
    manifest = {"step": step, "metrics": metrics, "files": {"model/weights": {"bytes": 8, "sha256": "-"}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def left(run_dir: Path) -> list[int]:
    return [point.step for point in read_checkpoints(run_dir)]


def test_the_newest_and_the_best_are_kept(tmp_path: Path) -> None:
    for step, reward in ((1, 0.1), (2, 0.9), (3, 0.2), (4, 0.3), (5, 0.25)):
        write(tmp_path, step, **{"eval/reward": reward})
    assert prune(tmp_path, CheckpointConfig(keep=2), newest=5) == [1, 3]
    assert left(tmp_path) == [2, 4, 5]


def test_the_best_may_be_the_lowest_and_there_may_be_several(tmp_path: Path) -> None:
    for step, loss in ((1, 0.1), (2, 0.9), (3, 0.05), (4, 0.3)):
        write(tmp_path, step, **{"eval/loss": loss})
    prune(tmp_path, CheckpointConfig(keep=1, best="eval/loss", best_mode="min", keep_best=2), newest=4)
    assert left(tmp_path) == [1, 3, 4]


def test_every_so_many_steps_one_is_kept_for_good(tmp_path: Path) -> None:
    for step in range(10, 70, 10):
        write(tmp_path, step)
    prune(tmp_path, CheckpointConfig(keep=1, keep_every=20, best=None), newest=60)
    assert left(tmp_path) == [20, 40, 60]


def test_a_pinned_one_is_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step)
    pin_checkpoint(tmp_path / "checkpoints" / "step-000001")
    prune(tmp_path, CheckpointConfig(keep=1, best=None), newest=3)
    assert left(tmp_path) == [1, 3]


def test_one_that_is_pinned_while_it_is_being_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        write(tmp_path, step)
    monkeypatch.setattr(retention, "is_pinned", lambda folder: "000001" in folder.name)
    assert prune(tmp_path, CheckpointConfig(keep=1, best=None), newest=2) == []
    assert left(tmp_path) == [1, 2]


def test_one_that_lost_its_files_takes_no_place_and_is_left_alone(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path, step, **{"eval/reward": float(step)})
    (tmp_path / "checkpoints/step-000002/model/weights").write_bytes(b"123")
    prune(tmp_path, CheckpointConfig(keep=2), newest=3)
    assert left(tmp_path) == [1, 2, 3]


def test_after_a_resume_what_was_just_written_stays_though_later_steps_lie_there(tmp_path: Path) -> None:
    """The only good one of the line that goes on is never removed for the sake of another line's."""
    for step in (2, 4, 8):
        write(tmp_path, step)
    assert prune(tmp_path, CheckpointConfig(keep=1, best=None), newest=4) == [2]
    assert left(tmp_path) == [4, 8]


def test_a_metric_that_is_missing_makes_nothing_the_best(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write(tmp_path, 2, **{"eval/reward": 0.5})
    write(tmp_path, 3)
    prune(tmp_path, CheckpointConfig(keep=1), newest=3)
    assert left(tmp_path) == [2, 3]


def test_room_is_asked_for_with_both_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "free_bytes", lambda path: 3 * 2**20)
    check_room(tmp_path, 3 * 2**20, what="it")
    with pytest.raises(RunFailedError, match=r"it takes about 4.0 MiB \(4194304 bytes\) and 3.0 MiB \(3145728 bytes\)"):
        check_room(tmp_path, 4 * 2**20, what="it")


def test_the_next_checkpoint_takes_what_the_last_one_took(tmp_path: Path) -> None:
    assert room_for_next(tmp_path, 1000) == 1000
    write(tmp_path, 1)
    assert room_for_next(tmp_path, 1000) == 8
