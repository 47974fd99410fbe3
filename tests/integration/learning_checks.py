"""A short learning check of every algorithm: the same text task, with its own advantages and with shuffled ones.

A tiny model that has seen a little of its task, sums of two numbers, is paid for the share of digits in its answers.
Each step has two optimiser steps, so that ratios move and what bounds them acts. Learned is a rise of the mean reward,
from the first steps to the last, by more than three standard errors; with advantages that are shuffled among the
responses it must not rise by as much.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from learning import SHUFFLE_STAGE, rise_in_standard_errors, run, run_config

from mmrl.runs.reader import RunReader

STEPS = 20
WINDOW = 8
NEEDED_RISE = 3.0
LR = 4e-4
"""Shuffled advantages are noise that moves the policy about, the farther the higher the rate: at 1e-3 the reward of
some of these runs drifts by five standard errors, up or down."""
DIGITS = """
def digits(response):
    return sum(letter.isdigit() for letter in response) / max(len(response), 1)


def short(response):
    return 1 / (1 + len(response))
"""
CHECKS: dict[str, dict[str, Any]] = {
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
    "ppo": {},
    "vapo": {"imitation_coef": 0.0},
}
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
    "sapo": (),
}
"""The metrics that tell that an algorithm's bound acted, where they are not those of a clip; gpg has no bound, and
sapo's fades without an edge."""
CLIP = ("actor/clip_fraction_low", "actor/clip_fraction_high")


@dataclass(frozen=True)
class Learning:
    """What came of a check.

    first, last: mean reward of the first and the last steps. rise, shuffled_rise: in standard errors.
    bounded: largest share of a step's tokens that a bound took the gradient of; None where there is none.
    cpu_s: of the two runs together.
    """

    name: str
    first: float
    last: float
    rise: float
    shuffled_rise: float
    bounded: float | None
    cpu_s: float


def check_learning(name: str, model: Path, home: Path) -> Learning:
    """Trains twice from `model`; `home` is where MMRL_HOME is, for files and runs."""
    began = time.process_time()
    learned = _train(name, model, home, "learned")
    shuffled = _train(name, model, home, "shuffled")
    rewards = _values(learned, "reward/mean")
    metrics = BOUNDS.get(name, CLIP)
    return Learning(
        name=name,
        first=fmean(rewards[:WINDOW]),
        last=fmean(rewards[-WINDOW:]),
        rise=rise_in_standard_errors(learned, window=WINDOW),
        shuffled_rise=rise_in_standard_errors(shuffled, window=WINDOW),
        bounded=max(map(sum, zip(*(_values(learned, metric) for metric in metrics), strict=True))) if metrics else None,
        cpu_s=time.process_time() - began,
    )


def assert_learned(result: Learning) -> None:
    assert result.rise > NEEDED_RISE, result
    assert result.shuffled_rise < NEEDED_RISE, result
    assert result.bounded is None or result.bounded > 0, f"two mini-batches a step must meet a bound at times: {result}"


def page(results: Sequence[Learning]) -> str:
    """docs/algorithm-checks.md."""
    text = " ".join(str(__doc__).split("\n\n")[1].split())
    rows = [
        f"| `{one.name}` | {one.first:.2f} → {one.last:.2f} | {one.rise:.1f} | {one.shuffled_rise:.1f} | "
        f"{'–' if one.bounded is None else f'{one.bounded:.1%}'} |"
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
            "| algorithm | mean reward | rise (standard errors) | advantages shuffled | most tokens bounded |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _train(name: str, model: Path, home: Path, kind: str) -> Path:
    (home / "digits.py").write_text(DIGITS)
    (home / "shuffle.py").write_text(SHUFFLE_STAGE)
    more = dict(MORE.get(name, {}))
    names = ["digits", "short"] if more.pop("two_rewards", False) else ["digits"]
    stage = {"after": "advantages", "path": str(home / "shuffle.py"), "name": "ShuffleAdvantages"}
    config = run_config(
        model,
        "arithmetic@train",
        steps=STEPS,
        lr=LR,
        algorithm={"type": name, "group_size": 8, **CHECKS[name]},
        reward=[{"type": "function", "path": str(home / "digits.py"), "name": part} for part in names],
        rollout={"prompts_per_step": 8, "max_response_tokens": 6},
        stages=[stage] if kind == "shuffled" else [],
        **more,
    )
    return run(config, home / f"{name}-{kind}").run_dir


def _values(run_dir: Path, metric: str) -> list[float]:
    rows: list[Mapping[str, float]] = [row.values for row in RunReader(run_dir).metrics([metric]) if row.step > 0]
    return [row[metric] for row in rows if metric in row]
