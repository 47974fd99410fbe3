"""Short runs on the digits: a warm start whose labels are half wrong, then GRPO."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance

from mmrl.config import RunConfig
from mmrl.data import load_dataset
from mmrl.data.digits import boxed, build_digits, digit_texts
from mmrl.data.normalise import make_sample
from mmrl.data.registry import register
from mmrl.models.tiny import build_tiny_qwen2_5_vl
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import TrainResult, train
from mmrl.types import Message, Sample, TextPart

SHUFFLE_STAGE = '''
import torch
from dataclasses import replace


class ShuffleAdvantages:
    """Gives each response the advantage of another one drawn at random, so that rewards teach nothing."""

    def __init__(self, seed=0):
        self.seed = seed

    def __call__(self, update, context):
        generator = torch.Generator().manual_seed(1000 * self.seed + context.step)
        mask = update.batch.response_mask
        value = update.batch.advantages.sum(-1) / mask.sum(-1).clamp(min=1)
        value = value[torch.randperm(len(value), generator=generator)]
        return replace(update, batch=update.batch.with_(advantages=value[:, None] * mask))
'''


def with_noisy_target(sample: Sample, draw: random.Random, answers: list[str]) -> Sample:
    answer = sample.answer if draw.random() < 0.5 else draw.choice(answers)
    return replace(sample, messages=(*sample.messages, Message("assistant", (TextPart(boxed(str(answer))),))))


def warm_model(folder: Path, data: str, *, steps: int, lr: float = 1e-3) -> Path:
    """A tiny model that has seen `steps` batches of half-wrong labels of `data`; needs MMRL_HOME set."""
    build_digits()
    base = build_tiny_qwen2_5_vl(folder / "base", sentences=digit_texts(), seed=0)
    samples = list(load_dataset(f"{data}@train"))
    answers = sorted({str(sample.answer) for sample in samples})
    draw = random.Random(0)
    register(f"{data}-noisy", {"train": [with_noisy_target(s, draw, answers) for s in samples]}, source=data)
    config = run_config(base, f"{data}-noisy", kind="sft", steps=steps, lr=lr)
    return run(config, folder / "warm").checkpoint


def register_digit_pairs() -> None:
    """`digit-pairs`: two images, whose digits are to be read from left to right."""
    build_digits()
    ones = list(load_dataset("digits-which@train"))
    pairs = [_pair(left, right) for left, right in zip(ones, [*ones[1:], ones[0]], strict=True)]
    register("digit-pairs", {"train": pairs}, source="digits-which")


def _pair(left: Sample, right: Sample) -> Sample:
    (image, text), (other, _) = (sample.messages[0].content for sample in (left, right))
    answer = f"{left.answer}{right.answer}"
    return make_sample((Message("user", (image, other, text)),), answer, {"source": "digits", "split": "train"})


def run_config(model: Path, data: str, *, kind: str = "rl", steps: int, lr: float = 1e-3, **more: object) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "learning",
            "kind": kind,
            "model": {"path": str(model), "dtype": "float32"},
            "data": {"train": data, "max_prompt_tokens": 96},
            "algorithm": {"type": "grpo", "group_size": 8, "loss_aggregation": "token_mean"},
            "reward": [{"type": "exact"}],
            "rollout": {"prompts_per_step": 16, "max_response_tokens": 12},
            "sft": {"batch_size": 32},
            "optim": {"lr": lr, "warmup_steps": 3},
            "train": {"steps": steps, "mini_batches": 2 if kind == "rl" else 1},
            "eval": {"every": 0, "at_start": False},
            "checkpoint": {"every": 0, "keep": 1},
            **more,
        }
    )


def run(config: RunConfig, run_dir: Path) -> TrainResult:
    return train(config, run_dir=run_dir, progress=make_progress("quiet"))


def rise_in_standard_errors(run_dir: Path, *, window: int = 15) -> float:
    """Mean reward of the last steps less that of the first, over the standard error of the difference."""
    rewards = _rewards(run_dir)
    first, last = rewards[:window], rewards[-window:]
    return (fmean(last) - fmean(first)) / _error_within(rewards, window)


def rise_of_runs(run_dirs: Sequence[Path], *, window: int) -> float:
    """The mean rise of several runs over its standard error: that between the runs, or that within them if it is more.

    What drifts over a run is alike in the steps of a window, so that the error within one run says too little.
    """
    runs = [_rewards(run_dir) for run_dir in run_dirs]
    rises = [fmean(rewards[-window:]) - fmean(rewards[:window]) for rewards in runs]
    within = fmean(_error_within(rewards, window) ** 2 for rewards in runs)
    return fmean(rises) / (max(variance(rises), within) / len(runs)) ** 0.5


def _rewards(run_dir: Path) -> list[float]:
    """The mean reward of each step."""
    return [row.values["reward/mean"] for row in RunReader(run_dir).metrics(["reward/mean"]) if row.step > 0]


def _error_within(rewards: Sequence[float], window: int) -> float:
    return ((variance(rewards[:window]) + variance(rewards[-window:])) / window) ** 0.5
