"""Writing a checkpoint stops the step for no longer than a copy."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from killing import small_config

from mmrl.errors import RunFailedError
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.online import OnlineLoop
from mmrl.trainer.snapshot import Snapshots
from mmrl.trainer.state import MemoryCopy


def test_the_loop_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is as slow as the step after: the checkpoint of step 2 is not written before step 3 is over."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    third_is_over, gates = threading.Event(), []
    write, close_step = Snapshots.write, OnlineLoop.close_step

    def slow_write(self: Snapshots, *arguments: object) -> int:
        gates.append(third_is_over.wait(60))
        return write(self, *arguments)

    def watched_close(self: OnlineLoop) -> None:
        close_step(self)
        if self.recorder.step == 3:
            third_is_over.set()

    monkeypatch.setattr(Snapshots, "write", slow_write)
    monkeypatch.setattr(OnlineLoop, "close_step", watched_close)
    run_dir = train(small_config(tmp_path, steps=4), run_dir=tmp_path / "run", progress=make_progress("quiet")).run_dir

    assert gates == [True, True]
    rows = {row.step: row.values for row in RunReader(run_dir).metrics()}
    assert rows[2]["timing_s/checkpoint_write"] > rows[3]["timing_s/step"]
    assert rows[2]["timing_s/checkpoint_wait"] <= rows[2]["timing_s/checkpoint"] < rows[2]["timing_s/checkpoint_write"]
    assert rows[2]["checkpoint/copied_bytes"] > 3 * 8 * 500_000, "weights and two moments in float64"


def test_a_snapshot_takes_no_longer_than_copying_the_tensors() -> None:
    """In processor time, turn about, each at its best: what else the machine does meets both and is not counted."""
    state = {f"layer {index}": {"weight": torch.randn(512, 2048)} for index in range(20)}

    def seconds(copy: Callable[[], object]) -> float:
        start = time.process_time()
        copy()
        return time.process_time() - start

    turns = [
        (
            seconds(lambda: [entry["weight"].clone() for entry in state.values()]),
            seconds(lambda: MemoryCopy().of(state, place="state")),
        )
        for _ in range(20)
    ]
    plain, ours = map(min, zip(*turns, strict=True))
    assert ours < 1.5 * plain + 0.005


def test_tensors_that_share_memory_share_it_in_the_copy_and_other_things_are_refused() -> None:
    weight = torch.arange(4.0)
    memory = MemoryCopy()
    copied = memory.of({"a": weight, "tied": weight.detach(), "list": [1, "x", None, (2.5, b"y")]}, place="part")
    weight += 1
    assert copied["a"].tolist() == [0, 1, 2, 3]
    assert copied["a"] is copied["tied"]
    assert copied["list"] == [1, "x", None, (2.5, b"y")]
    assert memory.num_bytes == 16
    with pytest.raises(RunFailedError, match=r"stages\.seen is a set, which a checkpoint does not hold"):
        memory.of({"seen": {1}}, place="stages")
