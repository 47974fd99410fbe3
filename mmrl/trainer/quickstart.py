"""The quickstart: data, a tiny vision-language model, an SFT warm start on half-wrong labels, then GRPO.

Everything is chosen on the validation split; the test split is read only for the two accuracies that are reported.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mmrl.config import RunConfig
from mmrl.config.base import home
from mmrl.config.loading import load_config
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import ImageConfig, ModelConfig, RewardRunnerConfig
from mmrl.data import load_dataset
from mmrl.data.digits import boxed, build_digits, digit_texts
from mmrl.data.images import ImageStore
from mmrl.data.registry import register
from mmrl.engines.rollout_hf import HfRollout
from mmrl.errors import ConflictError, NotFoundError
from mmrl.models.policy import load_policy
from mmrl.models.tiny import build_tiny_qwen2_5_vl
from mmrl.rewards.runner import RewardRunner
from mmrl.runs.checkpoint_refs import checkpoint_at
from mmrl.runs.reader import RunReader
from mmrl.trainer.evaluation import answer, evaluation_metrics
from mmrl.trainer.launch import TrainResult, train
from mmrl.types import Message, Sample, TextPart

WARM_START_DATA = "digits-which-noisy"
WRONG_SHARE = 0.5
WARM_START_STEPS = 180
WARM_START_ACCURACY = 0.5
"""GRPO starts from the checkpoint of the warm start whose accuracy on the validation split is nearest to this."""


@dataclass(frozen=True)
class Prepared:
    """What the GRPO run starts from."""

    model: Path
    accuracy_before: float


@dataclass(frozen=True)
class QuickstartResult:
    """Greedy accuracy on the test split before and after GRPO; seconds of training and evaluation together."""

    accuracy_before: float
    accuracy_after: float
    seconds: float
    run_dir: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def quickstart_config_path() -> Path:
    """`configs/quickstart.yaml` of the checkout that mmrl runs from."""
    path = Path(__file__).resolve().parents[2] / "configs" / "quickstart.yaml"
    if not path.is_file():
        raise NotFoundError(f"{path} does not exist; run mmrl from a checkout of its repository")
    return path


def prepare(out: Path, *, seed: int) -> Prepared:
    """Registers the data sets, builds the model and warms it up by SFT; leaves the model in `out`/model."""
    if out.exists() and not out.is_dir():
        raise ConflictError(f"{out} is a file; --out must name a folder")
    build_digits()
    model = out / "model"
    base = out / "base-model"
    for folder in (model, base):
        shutil.rmtree(folder, ignore_errors=True)
    build_tiny_qwen2_5_vl(base, sentences=digit_texts(), seed=seed)
    register_noisy_labels(seed)
    warm = train(warm_start_config(base, seed), run_dir=fresh_folder(out / f"warm-start-seed{seed}"))
    shutil.copytree(checkpoint_at(warm.run_dir, str(half_right_step(warm.run_dir))).model, model)
    return Prepared(model, accuracy(model))


def run_grpo(out: Path, *, seed: int, overrides: Sequence[str] = ()) -> TrainResult:
    """The run of `configs/quickstart.yaml` on the prepared model."""
    loaded = load_config(quickstart_config_path(), [f"seed={seed}", f"model.path={out / 'model'}", *overrides])
    return train(loaded.run_config, run_dir=fresh_folder(out / f"grpo-seed{seed}"))


def quickstart(out: Path | None = None, *, seed: int = 0) -> QuickstartResult:
    """The whole of it, on the test split's 297 images before and after."""
    out = out or default_out()
    start = time.perf_counter()
    prepared = prepare(out, seed=seed)
    result = run_grpo(out, seed=seed)
    after = accuracy(result.checkpoint)
    return QuickstartResult(prepared.accuracy_before, after, time.perf_counter() - start, str(result.run_dir))


def default_out() -> Path:
    return home() / "quickstart"


def fresh_folder(path: Path) -> Path:
    """`path` if it does not exist, else the first of path-2, path-3 … that does not: no run is overwritten."""
    candidate, number = path, 2
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate


def register_noisy_labels(seed: int) -> None:
    """The train splits of digits-which and digits-second as SFT data in which half of the answers are wrong digits."""
    for name in ("digits-which", "digits-second"):
        draw = random.Random(seed)
        samples = [_with_target(sample, draw) for sample in load_dataset(f"{name}@train")]
        register(f"{name}-noisy", {"train": samples}, source=f"{name}@train, half of the labels wrong")


def half_right_step(run_dir: Path) -> int:
    """The step of the checkpoint whose validation accuracy is nearest to `WARM_START_ACCURACY`."""
    checkpoints = RunReader(run_dir).checkpoints()
    nearest = min(checkpoints, key=lambda point: abs(point.metrics["eval/exact"] - WARM_START_ACCURACY))
    return nearest.step


def warm_start_config(model: Path, seed: int) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "quickstart-warm-start",
            "kind": "sft",
            "seed": seed,
            "model": {"path": str(model), "dtype": "float32"},
            "data": {
                "train": WARM_START_DATA,
                "eval": "digits-which@validation",
                "max_prompt_tokens": 64,
            },
            "reward": [{"type": "exact"}],
            "rollout": {"max_response_tokens": 12},
            "sft": {"batch_size": 32},
            "optim": {"lr": 1e-3, "warmup_steps": 5},
            "train": {"steps": WARM_START_STEPS},
            "eval": {"every": 20, "at_start": False},
            "checkpoint": {"every": 20, "keep": 9},
        }
    )


def accuracy(model: Path, *, split: str = "test") -> float:
    """Share of the images of digits-which that the model names right, greedy."""
    policy = load_policy(
        ModelConfig(path=str(model), dtype="float32"), ImageConfig(), store=ImageStore(), trainable=False
    )
    rollout = HfRollout(policy, RolloutConfig())
    config = load_config(quickstart_config_path()).run_config
    with RewardRunner(config.reward, RewardRunnerConfig()) as rewards:
        groups = answer(
            load_dataset(f"digits-which@{split}"),
            rollout,
            rewards,
            max_response_tokens=config.rollout.max_response_tokens,
            stop=config.rollout.stop,
        )
    rollout.close()
    return evaluation_metrics(groups)["eval/exact"]


def _with_target(sample: Sample, draw: random.Random) -> Sample:
    digit = str(sample.answer)
    if draw.random() < WRONG_SHARE:
        digit = draw.choice([other for other in "0123456789" if other != digit])
    target = Message("assistant", (TextPart(boxed(digit)),))
    return replace(sample, messages=(*sample.messages, target))
