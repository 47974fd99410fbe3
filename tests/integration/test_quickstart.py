"""The quickstart as a newcomer runs it: a real model, real images, accuracy on images that training never saw."""

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

from mmrl.runs.reader import RunReader


def quickstart(home: Path, seed: int) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "mmrl.cli.app", "quickstart", "--json", "--seed", str(seed)],
        env=os.environ | {"MMRL_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_quickstart_learns_and_its_samples_can_be_read(tmp_path: Path):
    result = quickstart(tmp_path, 0)

    assert set(result) == {"accuracy_before", "accuracy_after", "seconds", "run_dir"}
    assert result["accuracy_before"] <= 0.65
    assert result["accuracy_after"] >= 0.80

    shown = subprocess.run(
        [sys.executable, "-m", "mmrl.cli.app", "sample", "show", result["run_dir"], "--step", "1", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    group = json.loads(shown.stdout)["groups"][0]
    rewards = [response["reward"] for response in group["responses"]]
    assert rewards == sorted(rewards, reverse=True)
    assert len(rewards) == 8
    assert group["images"][0]["sha256"]

    gaps = [row.values["sync/logprob_gap_max"] for row in RunReader(Path(result["run_dir"])).metrics() if row.step]
    assert len(gaps) == 150
    assert max(gaps) < 1e-4


@pytest.mark.slow
def test_five_seeds_reach_the_accuracy_that_is_promised(tmp_path: Path):
    results = [quickstart(tmp_path / str(seed), seed) for seed in range(5)]

    assert all(result["accuracy_before"] <= 0.65 for result in results), results
    assert all(result["accuracy_after"] >= 0.80 for result in results), results
    assert fmean(result["accuracy_after"] for result in results) >= 0.85, results
