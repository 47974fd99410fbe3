"""Reward rises in a short run, and not where advantages are shuffled: with text alone, and with two images a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from learning import (
    SHUFFLE_STAGE,
    register_digit_pairs,
    rise_in_standard_errors,
    run,
    run_config,
    warm_model,
)

from mmrl.data.digits import build_digits
from mmrl.runs.reader import RunReader

NEAR = """
import re


def score(response, answer):
    found = re.findall(r"boxed.([0-9]+)", response)
    return 1 / (1 + abs(int(found[-1]) - int(answer))) if found else 0.0
"""
"""Few sums are right by chance, so the text-only task is paid for coming near."""

EACH_DIGIT = """
import re


def score(response, answer):
    found = re.findall(r"boxed.([0-9]+)", response)
    digits = found[-1] if found else ""
    return sum(read == shown for read, shown in zip(digits, answer)) / 2 if len(digits) == 2 else 0.0
"""
"""Half for the digit of the left image, half for that of the right one: an image taken for the other earns nothing."""


@dataclass(frozen=True)
class Task:
    """make: registers the data set. reward: a function `score`. warm_steps: of half-wrong labels before."""

    make: Callable[[], object]
    reward: str
    warm_steps: int
    steps: int
    prompts: int
    lr: float
    max_response_tokens: int
    entropy_coef: float = 0.0


TASKS = {
    "arithmetic": Task(build_digits, NEAR, 60, 30, 32, 1e-3, 12, entropy_coef=0.01),
    "digit-pairs": Task(register_digit_pairs, EACH_DIGIT, 150, 30, 16, 1e-3, 8),
}
WINDOW = 10


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("learning")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.mark.parametrize("name", [pytest.param("arithmetic", marks=pytest.mark.slow), "digit-pairs"])
def test_reward_rises_and_does_not_when_advantages_are_shuffled(home: Path, name: str) -> None:
    task = TASKS[name]
    task.make()
    model = warm_model(home / name, name, steps=task.warm_steps)
    learned = train(task, name, model, home / name, shuffled=False)
    shuffled = train(task, name, model, home / name, shuffled=True)
    assert rise_in_standard_errors(learned, window=WINDOW) > 3
    assert rise_in_standard_errors(shuffled, window=WINDOW) < 3
    clipped = [row.values["actor/clip_fraction_high"] or 0.0 for row in RunReader(learned).metrics()]
    assert max(clipped) > 0, "two mini-batches a step must clip at times"


def train(task: Task, name: str, model: Path, folder: Path, *, shuffled: bool) -> Path:
    """The folder of the run."""
    reward, stage = folder / "reward.py", folder / "shuffle.py"
    reward.write_text(task.reward)
    stage.write_text(SHUFFLE_STAGE)
    stages = [{"after": "advantages", "path": str(stage), "name": "ShuffleAdvantages"}]
    config = run_config(
        model,
        f"{name}@train",
        steps=task.steps,
        lr=task.lr,
        algorithm={
            "type": "grpo",
            "group_size": 8,
            "loss_aggregation": "token_mean",
            "entropy_coef": task.entropy_coef,
        },
        reward=[{"type": "function", "path": str(reward)}],
        rollout={"prompts_per_step": task.prompts, "max_response_tokens": task.max_response_tokens},
        stages=stages if shuffled else [],
    )
    return run(config, folder / ("shuffled" if shuffled else "learned")).run_dir
