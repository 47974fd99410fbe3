"""Jobs for the homes of console tests, with run directories written by the trainer's own writer and indexed as workers
index them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from job_rows import join
from PIL import Image, ImageDraw

from mmrl.config.loading import load_config
from mmrl.data.images import ImageStore
from mmrl.jobs.database import Database
from mmrl.jobs.from_config import job_of
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.leases import Leases
from mmrl.jobs.records import Job, Lease, NewJob
from mmrl.jobs.states import JobState
from mmrl.jobs.worker.indexer import Indexer
from mmrl.jobs.worker.run_folder import RunFolder
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.writer import RunWriter
from mmrl.trainer.checkpoint_folder import seal
from mmrl.types import (
    ImagePart,
    ImageRef,
    Message,
    RewardPart,
    RewardResult,
    Rollout,
    RolloutGroup,
    Sample,
    ScoredGroup,
    TextPart,
)

CONFIGS = Path(__file__).parents[2] / "configs"
COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (40, 80, 200)}
STEPS = 100


def grpo_job(name: str, overrides: Sequence[str] = (), **settings: Any) -> NewJob:
    """The quickstart's GRPO run, on the data set `shapes`."""
    words = [f"name={name}", "data.train=shapes@train", "data.eval=shapes@test", f"train.steps={STEPS}", *overrides]
    return job_of(load_config(CONFIGS / "quickstart.yaml", words).run_config, **settings)


def shape_samples(store: ImageStore, count: int, *, seed: int = 0) -> list[Sample]:
    """Questions about a coloured shape, each with an image of its own."""
    samples = []
    for number in range(count):
        colour = list(COLOURS)[(number + seed) % len(COLOURS)]
        image = Image.new("RGB", (96, 72), (245, 245, 245))
        left = 6 + (number * 7 + seed) % 40
        ImageDraw.Draw(image).rectangle((left, 12, left + 44, 56), fill=COLOURS[colour], outline=(0, 0, number % 256))
        content = (ImagePart(store.add(image)), TextPart(f"Which colour is shape {number}?"))
        samples.append(Sample(f"shape-{seed}-{number}", (Message("user", content),), colour, {"row": number}))
    return samples


class RunInHome:
    """A job that a worker holds, and its trainer's pen. step: how far it has written."""

    def __init__(self, database: Database, leases: Leases, job: Job, *, samples: Sequence[Sample]) -> None:
        lease = leases.claim(job.id)
        assert lease is not None, f"{job.name} could not be claimed"
        leases.started(lease, host="host", boot_id="boot", pid=1, pid_start_time=1.0)
        self.lease: Lease = lease
        self.job = job
        self.step = 0
        self.leases = leases
        self._samples = samples
        self._store = ImageStore()
        self.folder = RunFolder.of_job(replace(Jobs(database).get(job.id), attempt=lease.attempt))
        self.folder.prepare(lease)
        claim = AttemptClaim(lease.attempt, lease.token)
        config = self.folder.config_file.read_text()
        self.writer = RunWriter.create(self.folder.run_dir, config_yaml=config, resume=True, claim=claim)
        self.folder.stdout.write_text("step 1 done\n")
        self.folder.stderr.write_text("loading model\nready\n")
        self.writer.begin(0, total_steps=STEPS)
        self._indexer = Indexer(leases, self.folder)

    @property
    def run_dir(self) -> Path:
        return self.folder.run_dir

    def train(self, until: int, *, level: float = 1.0) -> None:
        """Metrics of each step, samples of every tenth; level scales the rewards, to tell runs apart."""
        while self.step < until:
            self.step += 1
            self.writer.metrics(self.step, step_metrics(self.step, level))
            if self.step % 10 == 0:
                groups = [self._group(sample) for sample in self._samples[:2]]
                self.writer.samples(self.step, "train", groups, store_path=self._path)
        with self.folder.stdout.open("a") as log:
            log.write(f"step {self.step} done\n")

    def evaluate(self) -> dict[str, float]:
        values = {"eval/reward": 0.5 + self.step / 400, "eval/exact": 0.4 + self.step / 400}
        self.writer.metrics(self.step, values)
        groups = [self._group(sample) for sample in self._samples[2:4]]
        self.writer.samples(self.step, "eval", groups, store_path=self._path)
        return values

    def checkpoint(self) -> Path:
        folder = self.run_dir / "checkpoints" / f"step-{self.step:06d}"
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
        (folder / "model" / "model.safetensors").write_bytes(b"\0" * 4096)
        seal(folder, step=self.step, metrics=self.evaluate())
        self.writer.event("checkpoint", step=self.step, path=str(folder))
        return folder

    def index(self) -> None:
        """As the worker does it at the run's end."""
        self._indexer.finish(self.lease)

    def end(self, state: JobState, cause: str, **fields: Any) -> None:
        """The job's end, as its worker writes it."""
        self.leases.move(self.lease, state, cause=cause, **fields)
        self.leases.release(self.lease)

    def _path(self, image: ImageRef) -> Path:
        return self._store.path(image)

    def _group(self, sample: Sample) -> ScoredGroup:
        rollouts, rewards = [], []
        for index in range(4):
            answer = sample.answer if index < 1 + self.step // 40 else "grey"
            text = f"The shape is \\boxed{{{answer}}}"
            rollouts.append(_rollout(sample, text, index, self.step))
            value = float(answer == sample.answer)
            parts = (RewardPart("exact", value, 1.0, extracted=answer), RewardPart("format", 1.0, 0.2))
            rewards.append(RewardResult(value + 0.2, parts))
        mean = sum(reward.total or 0.0 for reward in rewards) / len(rewards)
        advantages = tuple((reward.total or 0.0) - mean for reward in rewards)
        return ScoredGroup(RolloutGroup(sample, tuple(rollouts)), tuple(rewards), advantages)


def step_metrics(step: int, level: float = 1.0) -> dict[str, float]:
    """What a GRPO step tells, by the names that the trainer uses; smooth curves with a ripple."""
    share = 1 - math.exp(-step / 40)
    ripple = 0.05 * math.sin(step)
    return {
        "reward/mean": level * (0.2 + 0.8 * share + ripple),
        "reward/std": 0.4 - 0.2 * share,
        "reward/exact": level * (0.1 + 0.7 * share + ripple),
        "reward/format": 0.5 + 0.5 * share,
        "reward/missing": 0.0,
        "response/length_mean": 9.0 - 3 * share,
        "response/truncated_share": 0.1 * (1 - share),
        "actor/loss": 0.02 * math.cos(step),
        "actor/entropy": 1.4 - share,
        "actor/approx_kl": 0.001 + 0.0005 * ripple,
        "actor/clip_fraction": 0.02 + 0.1 * abs(ripple),
        "actor/grad_norm": 0.8 + ripple,
        "actor/lr": 5e-4 * (1 - step / STEPS / 2),
        "sync/kl": 1e-6,
        "sync/logprob_gap_max": 3e-6,
        "timing_s/rollout": 0.9,
        "timing_s/update_actor": 0.6,
        "timing_s/step": 1.7,
        "perf/tokens_per_s": 5200.0 + 300 * ripple,
        "perf/rollout_tokens_per_s": 2100.0,
    }


def _rollout(sample: Sample, text: str, index: int, step: int) -> Rollout:
    return Rollout(
        sample_id=sample.id,
        index=index,
        token_ids=(11, 12, 13),
        response_mask=(1, 1, 1),
        logprobs=(-0.1, -0.2, -0.3),
        finish_reason="stop",
        text=text,
        policy_version=step,
        seed=index,
    )


def add_boxes_run(home: Any, database: Database) -> None:
    """A run, `boxes` in the home, whose answers are boxes around the shape: near it, beside it, and no box at all."""
    samples = [
        replace(sample, answer="[[10, 12, 60, 60]]", messages=(_asked_where(sample),))
        for sample in shape_samples(ImageStore(), 4)
    ]
    job = Jobs(database).submit(grpo_job("boxes", ["reward=[{type: iou}]"]))
    home.jobs["boxes"] = job.id
    run = RunInHome(database, join(database, cpus=64), job, samples=samples)
    texts = ("\\boxed{[[12, 12, 62, 60]]}", "\\boxed{[[40, 30, 90, 70]]}", "\\boxed{[[0, 0, 20, 20]]}", "I see none")
    values = (0.92, 0.25, 0.03, 0.0)
    rewards = tuple(
        RewardResult(value, (RewardPart("iou", value, 1.0, explanation="1 boxes for 1"),)) for value in values
    )
    advantages = tuple(value - sum(values) / 4 for value in values)
    groups = [
        ScoredGroup(
            RolloutGroup(sample, tuple(_rollout(sample, text, index, 10) for index, text in enumerate(texts))),
            rewards,
            advantages=advantages,
        )
        for sample in samples
    ]
    run.writer.samples(10, "train", groups, store_path=ImageStore().path)
    run.writer.close("succeeded")
    run.index()
    run.end(JobState.SUCCEEDED, "finished", exit_code=0)


def _asked_where(sample: Sample) -> Message:
    images = tuple(ImagePart(image) for image in sample.images)
    return Message("user", (*images, TextPart("Where is the shape? Answer with its box in pixels.")))
