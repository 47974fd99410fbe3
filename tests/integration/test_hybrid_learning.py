"""The digits, trained whole in each layout of the hybrid engine, reach what one process reaches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.runs.reader import RunReader

ROOT = Path(__file__).parents[2]
LAYOUTS = {
    "one-process-hf": [],
    "two-ranks-vllm": ["placement.executor=ray", "placement.pools.main.workers=2", "rollout.engine=vllm"],
    "two-ranks-vllm-tensor-parallel": [
        *("placement.executor=ray", "placement.pools.main.workers=2", "rollout.engine=vllm"),
        "rollout.tensor_parallel=2",
    ],
    "separate-vllm": [
        *("placement.executor=ray", "rollout.engine=vllm", "placement.roles.rollout=sampling"),
        "placement.pools={main: {workers: 1}, sampling: {workers: 1}}",
    ],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and the model after its warm start."""
    folder = tmp_path_factory.mktemp("hybrid-learning")
    command(folder, "quickstart", "--prepare")
    return folder


def command(home: Path, *arguments: str) -> None:
    environment = os.environ | {"MMRL_HOME": str(home), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    line = [sys.executable, "-m", "mmrl.cli.app", *arguments]
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_digits_are_learned_in_every_layout(home: Path, layout: str):
    folder = home / "runs" / layout
    command(home, "train", "configs/quickstart.yaml", "--run-dir", str(folder), *LAYOUTS[layout])
    rows = RunReader(folder).metrics(["eval/exact", "sync/logprob_gap_max"])
    accuracy = [row.values["eval/exact"] for row in rows if "eval/exact" in row.values]
    gaps = [row.values["sync/logprob_gap_max"] for row in rows if "sync/logprob_gap_max" in row.values]
    assert accuracy[0] <= 0.65
    assert accuracy[-1] >= 0.80
    assert len(gaps) == 150
    assert max(gaps) <= 1e-4
