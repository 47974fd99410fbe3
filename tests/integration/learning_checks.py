"""A short learning check of every algorithm: the same text task, with its own advantages and with shuffled ones.

A tiny model that has seen a little of its task, sums of two numbers, is paid for the share of digits in its answers.
Each step has two optimiser steps, so that ratios move and what bounds them acts. Learned is a rise of the mean reward,
from the first steps to the last, by more than three standard errors. With advantages that are shuffled among the
responses the policy is moved about by noise, and its reward drifts up or down: the mean of three such runs must rise
neither by three of its own standard errors, which are those between the runs, nor by a third as much.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from learning import SHUFFLE_STAGE, rise_in_standard_errors, rise_of_runs, run, run_config

from mmrl.algorithms import ALGORITHMS
from mmrl.runs.reader import RunReader

STEPS = 20
WINDOW = 8
NEEDED_RISE = 3.0
MOST_DRIFT = 1 / 3
SHUFFLES = 3
"""Runs with shuffled advantages, each shuffled in another way."""
LR = 4e-4
DIGITS = """
def digits(response):
    return sum(letter.isdigit() for letter in response) / max(len(response), 1)


def short(response):
    return 1 / (1 + len(response))
"""
SETTINGS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "dr_grpo": {},
    "rloo": {},
    "gspo": {},
    "cispo": {"cap": 1.2},
    "sapo": {},
    "opo": {},
    "gpg": {},
    "pass_at_k": {},
    "reinforce_plus_plus_baseline": {},
    "reinforce_plus_plus": {"kl": {"coef": 0.0}},
    "dapo": {"sampling_rounds": 2},
    "remax": {},
    "gdpo": {},
    "online_dpo": {},
    "sppo": {"eta": 1.0},
    "ppo": {},
    "vapo": {"imitation_coef": 0.0},
}
CHECKS = SETTINGS | {name: {} for name in ALGORITHMS if name not in SETTINGS}
"""The settings of each check besides its type; all have eight responses to each of eight prompts. vapo's likelihood of
right responses is off, since it learns without any advantage."""
MORE: dict[str, dict[str, Any]] = {
    "gdpo": {"two_rewards": True},
    "ppo": {"critic": {"optim": {"lr": 1e-3}}},
    "vapo": {"critic": {"optim": {"lr": 1e-3}, "warmup_steps": 3}},
}
BOUNDS = {
    "cispo": ("actor/cap_fraction",),
    "gpg": (),
    "online_dpo": (),
    "sapo": (),
    "sppo": (),
}
"""The metrics that tell that an algorithm's bound acted, where they are not those of a clip; gpg has no bound, and
sapo's fades without an edge."""
CLIP = ("actor/clip_fraction_low", "actor/clip_fraction_high")


@dataclass(frozen=True)
class Learning:
    """What came of a check.

    rewards, shuffled_rewards: mean reward of the first and of the last steps, of all shuffled runs.
    rise, shuffled_rise: of each of the two, in its own standard errors.
    bounded: largest share of a step's tokens that a bound took the gradient of; None where there is none.
    cpu_s: of all runs together.
    """

    name: str
    rewards: tuple[float, float]
    shuffled_rewards: tuple[float, float]
    rise: float
    shuffled_rise: float
    bounded: float | None
    cpu_s: float


def check_learning(name: str, model: Path, home: Path) -> Learning:
    """Trains from `model`, as it should be and shuffled; `home` is where MMRL_HOME is, for files and runs."""
    began = time.process_time()
    learned = _train(name, model, home)
    shuffled = [_train(name, model, home, shuffle=seed) for seed in range(SHUFFLES)]
    return learning_of(name, learned, shuffled, cpu_s=time.process_time() - began)


def learning_of(name: str, learned: Path, shuffled: Sequence[Path], *, cpu_s: float) -> Learning:
    """What the runs of a check came to."""
    metrics = BOUNDS.get(name, CLIP)
    firsts, lasts = zip(*map(_first_and_last, shuffled), strict=True)
    return Learning(
        name=name,
        rewards=_first_and_last(learned),
        shuffled_rewards=(fmean(firsts), fmean(lasts)),
        rise=rise_in_standard_errors(learned, window=WINDOW),
        shuffled_rise=rise_of_runs(shuffled, window=WINDOW),
        bounded=max(map(sum, zip(*(_values(learned, metric) for metric in metrics), strict=True))) if metrics else None,
        cpu_s=cpu_s,
    )


def assert_learned(result: Learning) -> None:
    assert result.rise > NEEDED_RISE, result
    assert result.shuffled_rise < NEEDED_RISE, result
    (first, last), (shuffled_first, shuffled_last) = result.rewards, result.shuffled_rewards
    assert shuffled_last - shuffled_first < MOST_DRIFT * (last - first), result
    assert result.bounded is None or result.bounded > 0, f"two mini-batches a step must meet a bound at times: {result}"


def page(results: Sequence[Learning]) -> str:
    """docs/algorithm-checks.md."""
    text = " ".join(str(__doc__).split("\n\n")[1].split())
    rows = [
        f"| `{one.name}` | {_arrow(one.rewards)} | {one.rise:.1f} | {_arrow(one.shuffled_rewards)} | "
        f"{_signed(one.shuffled_rise)} | {'–' if one.bounded is None else f'{one.bounded:.1%}'} |"
        for one in results
    ]
    return "\n".join(
        [
            "# Which algorithms were seen to learn",
            "",
            "Written by `make test-all`; a few of these checks run in continuous integration too.",
            "",
            text,
            "",
            f"{STEPS} steps of 8 prompts with 8 responses, seed 0, one thread; windows of {WINDOW} steps.",
            "",
            "| algorithm | mean reward | rise (standard errors) | shuffled | rise (its own errors) | most bounded |",
            "| --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _train(name: str, model: Path, home: Path, *, shuffle: int | None = None) -> Path:
    (home / "digits.py").write_text(DIGITS)
    (home / "shuffle.py").write_text(SHUFFLE_STAGE)
    more = dict(MORE.get(name, {}))
    names = ["digits", "short"] if more.pop("two_rewards", False) else ["digits"]
    stage = {"after": "advantages", "path": str(home / "shuffle.py"), "name": "ShuffleAdvantages"}
    stages = [] if shuffle is None else [{**stage, "arguments": {"seed": shuffle}}]
    config = run_config(
        model,
        "arithmetic@train",
        steps=STEPS,
        lr=LR,
        algorithm={"type": name, "group_size": 8, **CHECKS[name]},
        reward=[{"type": "function", "path": str(home / "digits.py"), "name": part} for part in names],
        rollout={"prompts_per_step": 8, "max_response_tokens": 6},
        stages=stages,
        **more,
    )
    return run(config, home / (f"{name}-learned" if shuffle is None else f"{name}-shuffled-{shuffle}")).run_dir


def _signed(rise: float) -> str:
    return f"{rise:.1f}".replace("-", "−")


def _arrow(rewards: tuple[float, float]) -> str:
    return f"{rewards[0]:.2f} → {rewards[1]:.2f}"


def _first_and_last(run_dir: Path) -> tuple[float, float]:
    rewards = _values(run_dir, "reward/mean")
    return fmean(rewards[:WINDOW]), fmean(rewards[-WINDOW:])


def _values(run_dir: Path, metric: str) -> list[float]:
    rows: list[Mapping[str, float]] = [row.values for row in RunReader(run_dir).metrics([metric]) if row.step > 0]
    return [row[metric] for row in rows if metric in row]
