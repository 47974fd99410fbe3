"""Digits marked as people would mark them, by a rule: of two answers to an image, which is better."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from learning import run, warm_model

from mmrl.config import RunConfig
from mmrl.data import load_dataset
from mmrl.data.digits import boxed
from mmrl.data.normalise import make_sample
from mmrl.data.registry import register
from mmrl.data.serialise import messages_to_json
from mmrl.trainer import TrainResult
from mmrl.types import Message, Sample, TextPart

DIGITS = [str(digit) for digit in range(10)]


def answer_turn(text: str) -> list[dict[str, Any]]:
    return messages_to_json([Message("assistant", (TextPart(text),))])


def marked_pair(sample: Sample, draw: random.Random) -> Sample:
    """The right answer is chosen over a wrong one."""
    wrong = draw.choice([digit for digit in DIGITS if digit != sample.answer])
    marks = {"chosen": answer_turn(boxed(str(sample.answer))), "rejected": answer_turn(boxed(wrong))}
    return make_sample(sample.messages, sample.answer, {**sample.meta, **marks})


def judged_answer(sample: Sample, draw: random.Random) -> Sample:
    """One answer, right or wrong, with the judgement of it."""
    is_right = draw.random() < 0.5
    answer = str(sample.answer) if is_right else draw.choice([digit for digit in DIGITS if digit != sample.answer])
    meta = {**sample.meta, "completion": answer_turn(boxed(answer)), "label": is_right}
    return make_sample(sample.messages, sample.answer, meta)


def register_marks(*, seed: int = 0) -> None:
    """digits-pairs and digits-judged, with the splits of digits-which."""
    draw = random.Random(seed)
    splits = {split: list(load_dataset(f"digits-which@{split}")) for split in ("train", "validation", "test")}
    register("digits-pairs", _each(splits, lambda sample: marked_pair(sample, draw)), source="digits-which")
    register("digits-judged", _each(splits, lambda sample: judged_answer(sample, draw)), source="digits-which")


def _each(splits: dict[str, list[Sample]], make: Any) -> dict[str, Sequence[Sample]]:
    return {name: [make(sample) for sample in samples] for name, samples in splits.items()}


def marks_config(
    model: Path, kind: str, *, steps: int, lr: float, data: str = "digits-pairs", **more: Any
) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "marks",
            "kind": kind,
            "model": {"path": str(model), "dtype": "float32"},
            "data": {"train": f"{data}@train", "eval": f"{data}@validation", "max_prompt_tokens": 96},
            "rollout": {"max_response_tokens": 12},
            "optim": {"lr": lr, "warmup_steps": 3},
            "train": {"steps": steps},
            "eval": {"every": 0, "at_start": True},
            "checkpoint": {"every": 0, "keep": 1},
            **more,
        }
    )


__all__ = ["TrainResult", "marks_config", "register_marks", "run", "warm_model"]
