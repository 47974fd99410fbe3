"""A stage of the user's own on the workers of a pool, through `mmrl train`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from killing import PROMPTS_PER_STEP, numbers_of_line, small_config

from mmrl.config import dump_yaml

STAGE = '''
from dataclasses import replace

from mmrl.cluster import dispatch


class Halve:
    """Halves the rewards, on all workers, each its share of the groups; tells who did how many."""

    def __init__(self, factor, worker):
        self.factor, self.worker, self.seen = factor, worker, 0

    @dispatch("shard")
    def __call__(self, groups, context):
        self.seen += len(groups)
        context.metrics[f"halve/rank_{self.worker.rank}"] = float(len(groups))
        context.metrics["halve/groups"] = float(len(groups))
        return [
            replace(group, rewards=tuple(replace(reward, total=reward.total * self.factor) for reward in group.rewards))
            for group in groups
        ]

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]
'''


@pytest.mark.ray
def test_a_stage_of_the_users_own_runs_on_the_workers_of_its_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    (tmp_path / "halve.py").write_text(STAGE)
    stage = {"after": "reward", "path": str(tmp_path / "halve.py"), "name": "Halve", "arguments": {"factor": 0.5}}
    placement = {"executor": "ray", "pools": {"main": {"workers": 2}}, "object_store_mb": 100, "deadline_s": 200}
    config = small_config(tmp_path, steps=2, stages=[stage | {"pool": "main"}], placement=placement)
    (tmp_path / "run.yaml").write_text(dump_yaml(config))
    command = [sys.executable, "-m", "mmrl.cli.app", "-vv", "train", str(tmp_path / "run.yaml")]

    done = subprocess.run([*command, "--run-dir", str(tmp_path / "run")], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    numbers = numbers_of_line(tmp_path / "run")
    for step in (1, 2):
        assert numbers[step]["halve/groups"] == PROMPTS_PER_STEP
        assert numbers[step]["halve/rank_0"] == numbers[step]["halve/rank_1"] == PROMPTS_PER_STEP / 2
    assert "stage-0-Halve.__call__ on 2 workers of main took" in done.stderr
    log = (tmp_path / "run" / "attempt-1" / "logs" / "worker-main-1.log").read_text()
    assert "rank 1: stage-0-Halve.__call__ took" in log
