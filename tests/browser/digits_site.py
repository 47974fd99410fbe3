"""A finished digits run as a job of the console's own worker, and digits told apart by looking at them."""

from __future__ import annotations

import io
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from homes import Home
from PIL import Image

from mmrl.config import RunConfig
from mmrl.data.dataset import load_dataset
from mmrl.data.digits import boxed, build_digits, digit_texts
from mmrl.data.images import ImageStore
from mmrl.data.registry import register
from mmrl.jobs.database import Database
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.jobs.states import TERMINAL
from mmrl.models.tiny import build_tiny_qwen2_5_vl
from mmrl.types import Message, Sample, TextPart

WARM_STEPS = 100
STEPS = 16
PROMPTS = 100
"""Of the held-out digits, in evaluations of the run and in panels made of it."""
_PATIENCE_S = 240.0


def finished_run(home: Home) -> Job:
    """GRPO on a tiny model that has seen half-wrong labels; a worker of the home has to take the two jobs."""
    with home.active(), Database.open() as database:
        build_digits()
        base = build_tiny_qwen2_5_vl(home.path / "tiny", sentences=digit_texts(), seed=0)
        draw = random.Random(0)
        samples = [_half_right(sample, draw) for sample in load_dataset("digits-which@train")]
        register("digits-noisy", {"train": samples}, source="digits-which")
        jobs = Jobs(database)
        warm = finished(jobs, _submit(jobs, _config("warm", "sft", base, steps=WARM_STEPS, lr=1e-3)))
        model = Path(str(warm.run_dir)) / f"checkpoints/step-{WARM_STEPS:06d}/model"
        return finished(jobs, _submit(jobs, _config("digits", "rl", model, steps=STEPS, lr=5e-4)))


def finished(jobs: Jobs, job: Job) -> Job:
    end = time.monotonic() + _PATIENCE_S
    while (found := jobs.get(job.id)).state not in TERMINAL:
        assert time.monotonic() < end, f"{job.name} is {found.state} still"
        time.sleep(0.2)
    assert found.state == "succeeded", (found.state, found.error_message)
    return found


@dataclass(frozen=True)
class Digits:
    """What each held-out image shows. images: (num, pixels), gray."""

    images: np.ndarray
    answers: tuple[str, ...]

    @classmethod
    def of_home(cls) -> Digits:
        """Needs the home to be active."""
        store = ImageStore()
        samples = list(load_dataset("digits-which@validation"))
        images = np.stack([_pixels(store.read(sample.images[0])) for sample in samples])
        return cls(images, tuple(str(sample.answer) for sample in samples))

    def look(self, picture: bytes) -> str:
        """The digit of the image that is nearest to a picture, which a browser is given in less than full quality."""
        return self.answers[int(np.abs(self.images - _pixels(picture)).sum(axis=1).argmin())]


def _pixels(picture: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(picture)) as image:
        return np.asarray(image.convert("L"), dtype=np.float32).ravel()


def _submit(jobs: Jobs, config: RunConfig) -> Job:
    return jobs.submit(job_of(config))


def _config(name: str, kind: str, model: Path, *, steps: int, lr: float) -> RunConfig:
    is_rl = kind == "rl"
    return RunConfig.model_validate(
        {
            "name": name,
            "kind": kind,
            "model": {"path": str(model), "dtype": "float32"},
            "data": {
                "train": "digits-which@train" if is_rl else "digits-noisy",
                "eval": "digits-which@validation" if is_rl else None,
                "max_prompt_tokens": 96,
            },
            "algorithm": {"type": "grpo", "group_size": 8},
            "reward": [{"type": "exact"}, {"type": "format", "weight": 0.2, "pattern": r"\\boxed\{\d\}"}],
            "rollout": {"prompts_per_step": 16, "max_response_tokens": 7},
            "optim": {"lr": lr, "warmup_steps": 3},
            "train": {"steps": steps, "mini_batches": 2 if is_rl else 1},
            "eval": {"every": steps // 2 if is_rl else 0, "at_start": is_rl, "max_samples": PROMPTS},
            "checkpoint": {"every": steps // 2 if is_rl else 0, "keep": 4},
        }
    )


def _half_right(sample: Sample, draw: random.Random) -> Sample:
    answer = sample.answer if draw.random() < 0.5 else str(draw.randrange(10))
    return replace(sample, messages=(*sample.messages, Message("assistant", (TextPart(boxed(str(answer))),))))
