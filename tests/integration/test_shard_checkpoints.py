"""The files that ranks write are read by another number of ranks, and without running code.

From two ranks to one process and back is part of the run of test_shard_gradients.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from shard_alone import gap_after_resume
from shard_runs import run_ranks

from mmrl.engines.shard_reader import ShardReader
from mmrl.errors import DataError


@pytest.mark.slow
def test_c04_one_and_four_ranks_go_on_from_what_two_wrote(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    models = {"qwen2_5_vl": tiny_model(seed=1)}
    run_ranks(2, models=models, scratch=tmp_path, cases=[{"name": "save", "kind": "save"}])
    for num_ranks in (1, 4):
        run_ranks(num_ranks, models=models, scratch=tmp_path, cases=[{"name": "resume", "kind": "resume"}])
        assert gap_after_resume(tmp_path / "checkpoint", str(num_ranks)) < 1e-6


def test_x04_a_list_of_tensors_that_could_run_code_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / ".metadata").write_bytes(pickle.dumps(_Touch(str(marker))))
    with pytest.raises(DataError, match="which could run code"):
        ShardReader(tmp_path).read_metadata()
    assert not marker.exists()


class _Touch:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path(self._path),)
