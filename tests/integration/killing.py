"""A small run in float64 that is killed again and again, and the line that survives."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mmrl.config import RunConfig, dump_yaml
from mmrl.data import load_dataset
from mmrl.data.digits import build_digits, digit_texts
from mmrl.data.registry import register
from mmrl.models.tiny import build_tiny_qwen2_5_vl
from mmrl.runs.reader import RunReader

REWARD = "def score(response):\n    return float(len(response) % 7)\n"
FULL_DISK = '''
import resource
import threading


class FullDisk:
    """From step `first` to step `last` no file may grow beyond a megabyte, as if the disk were full. What is written
    of earlier steps is written before."""

    def __init__(self, first, last):
        self.first, self.last = first, last

    def __call__(self, groups, context):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        limited = self.first <= context.step <= self.last
        for thread in threading.enumerate():
            if "checkpoint" in thread.name:
                thread.join(60)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20 if limited else hard, hard))
        return groups
'''

NUM_SAMPLES = 22
PROMPTS_PER_STEP = 4

OF_THE_CLOCK = re.compile(r"^(timing_s|perf|checkpoint)/|/ms$|_ms$|_s$")
"""Metrics that are of the clock and not of the numbers."""


def small_config(home: Path, *, steps: int, name: str = "killed", **more: object) -> RunConfig:
    """Two mini-batches a step, five and a half steps an epoch, a checkpoint every two; needs MMRL_HOME set."""
    if not (home / "model").exists():
        build_digits()
        register("few", {"train": list(load_dataset("digits-which@train"))[:NUM_SAMPLES]}, source="digits-which")
        build_tiny_qwen2_5_vl(home / "model", sentences=digit_texts())
        (home / "score.py").write_text(REWARD)
    return RunConfig.model_validate(
        {
            "name": name,
            "model": {"path": str(home / "model"), "dtype": "float64"},
            "data": {"train": "few@train", "max_prompt_tokens": 96},
            "algorithm": {"type": "grpo", "group_size": 4, "kl": {"coef": 0.01}},
            "reward": [{"type": "function", "path": str(home / "score.py"), "name": "score"}],
            "rollout": {"prompts_per_step": PROMPTS_PER_STEP, "max_response_tokens": 6},
            "optim": {"lr": 1e-4, "schedule": "linear", "warmup_steps": 3},
            "train": {"steps": steps, "mini_batches": 2},
            "eval": {"every": 0, "at_start": False},
            "checkpoint": {"every": 2, "keep": 2},
            "reward_runner": {"workers": 1},
            **more,
        }
    )


def start(config: RunConfig, run_dir: Path, *words: str) -> subprocess.Popen[str]:
    path = run_dir.with_suffix(".yaml")
    path.write_text(dump_yaml(config))
    command = [sys.executable, "-m", "mmrl.cli.app", "train", str(path), "--run-dir", str(run_dir), *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def kill_at(process: subprocess.Popen[str], moment: Callable[[], bool], *, timeout_s: float = 300) -> None:
    """SIGKILL as soon as `moment` has come, which must be before the process ends by itself."""
    deadline = time.monotonic() + timeout_s
    while not moment() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == -signal.SIGKILL, f"ended by itself before it was killed; more steps needed?\n{stderr}"
    assert time.monotonic() < deadline, f"the moment to kill never came\n{stderr}"


def random_moment(run_dir: Path, draw: random.Random) -> Callable[[], bool]:
    """Somewhere in the first steps of the next attempt, or while it starts, or in a save; decided by `draw`."""
    before = len(RunReader(run_dir).attempts()) if run_dir.exists() else 0
    metrics = run_dir / f"attempt-{before + 1}" / "metrics.jsonl"
    lines, delay_s = draw.randrange(0, 7), draw.uniform(0, 0.4)
    came: list[float] = []

    def moment() -> bool:
        if not came and metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
            came.append(time.monotonic())
        return bool(came) and time.monotonic() - came[0] >= delay_s

    return moment


def in_a_save(run_dir: Path) -> Callable[[], bool]:
    """While a checkpoint has not got its name yet."""
    before = set(run_dir.glob("checkpoints/.step-*.tmp"))
    return lambda: any(set(run_dir.glob("checkpoints/.step-*.tmp")) - before)


def prompts_of_line(run_dir: Path) -> list[str]:
    """The prompts along the surviving line, in the order in which they came."""
    reader = RunReader(run_dir)
    return [group.prompt_id for step in reader.steps("train") for group in reader.sample_groups(step, "train")]


def numbers_of_line(run_dir: Path) -> dict[int, dict[str, float | None]]:
    """Step -> its metrics, those of the clock left out."""
    rows = RunReader(run_dir).metrics()
    return {row.step: {k: v for k, v in row.values.items() if not OF_THE_CLOCK.search(k)} for row in rows}
