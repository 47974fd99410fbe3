"""One GRPO step of mmrl on a model with random weights: what the benchmarks of speed have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

LR = 1e-5
MICRO_BATCH_TOKENS = 1500
KEPT_RESPONSES_MB = 512
"""With these two a step with images of 224 px stays within half of the memory that TRL takes."""


def memory_settings(image_px: int) -> dict[str, int]:
    """The fastest of those tried for images of this side (0: text alone), where there are images within half of the
    memory that TRL takes."""
    if not image_px:
        return {"micro_batch_tokens": 2100, "kept_responses_mb": 1400}  # a group of 16 with 128 tokens in one pass
    if image_px > 224:
        return {"micro_batch_tokens": 1800, "kept_responses_mb": KEPT_RESPONSES_MB}  # 4 prompts in one pass
    return {"micro_batch_tokens": MICRO_BATCH_TOKENS, "kept_responses_mb": KEPT_RESPONSES_MB}


@dataclass(frozen=True)
class Timed:
    """Seconds and floating-point operations of sampling and of the update (weight sync included) in one step."""

    rollout_s: float
    update_s: float
    rollout_flops: float
    update_flops: float

    @property
    def seconds(self) -> float:
        return self.rollout_s + self.update_s

    @property
    def flops(self) -> float:
        return self.rollout_flops + self.update_flops


def random_images(seed: int, *, prompts: int, images: int, px: int) -> list[list[Image.Image]]:
    """`images` images of noise for each prompt; none where px is 0."""
    draw = np.random.default_rng(seed)
    return [
        [Image.fromarray(draw.integers(0, 256, (px, px, 3), dtype=np.uint8)) for _ in range(images if px else 0)]
        for _ in range(prompts)
    ]


def question(index: int) -> str:
    return f"Which digit is this? {index % 10}"


def full_length_reward(token_ids: Sequence[int]) -> float:
    """Any number that differs within a group will do."""
    return float(len(set(token_ids)))


class Stepper:
    """Runs steps with responses forced to their full length. model: a folder. freeze: parts as in `model.freeze`."""

    def __init__(
        self,
        model: Path | str,
        *,
        group: int,
        new_tokens: int,
        freeze: Sequence[Any] = (),
        total_steps: int,
        keep_prompts: bool = True,
        micro_batch_tokens: int = MICRO_BATCH_TOKENS,
        kept_responses_mb: int = KEPT_RESPONSES_MB,
        gradient_checkpointing: bool = False,
        wait: Callable[[], None] = lambda: None,
    ) -> None:
        from mmrl.algorithms import build_algorithm
        from mmrl.config.algorithm import GrpoConfig
        from mmrl.config.rollout import RolloutConfig
        from mmrl.config.run import ImageConfig, ModelConfig, OptimConfig, TrainConfig
        from mmrl.data.images import ImageStore
        from mmrl.engines.actor import HfActor
        from mmrl.engines.base import SamplingParams
        from mmrl.engines.rollout_hf import HfRollout
        from mmrl.models.policy import load_policy

        self.store = ImageStore()
        config = ModelConfig(path=str(model), dtype="float32", freeze=tuple(freeze))
        self.policy = load_policy(config, ImageConfig(), store=self.store)
        self.policy.end_token_ids = frozenset()
        train = TrainConfig(
            micro_batch_tokens=micro_batch_tokens,
            gradient_checkpointing=gradient_checkpointing,
            kept_responses_mb=kept_responses_mb if keep_prompts else 0,
        )
        self.actor = HfActor(self.policy, OptimConfig(lr=LR), train, temperature=1.0, total_steps=total_steps)
        self.rollout = HfRollout(self.policy, RolloutConfig())
        self.algorithm = build_algorithm(GrpoConfig(group_size=group))
        self.params = SamplingParams(max_response_tokens=new_tokens)
        self.group = group
        self.keep_prompts = keep_prompts
        self.wait = wait

    def step(self, number: int, images: Sequence[Sequence[Image.Image]]) -> Timed:
        from mmrl.batch import build_group_batch
        from mmrl.types import ImagePart, Message, RewardResult, Sample, ScoredGroup, TextPart

        samples = []
        for index, of_prompt in enumerate(images):
            content = (*(ImagePart(self.store.add(image)) for image in of_prompt), TextPart(question(index)))
            samples.append(Sample(f"{number}-{index}", (Message("user", content),)))
        start = time.perf_counter()
        groups = self.rollout.generate(
            samples, self.params, num_responses=self.group, seed=0, step=number, for_update=self.keep_prompts
        )
        sampled = time.perf_counter()
        self.wait()
        resumed = time.perf_counter()
        scored = [
            ScoredGroup(group, tuple(RewardResult(full_length_reward(row.token_ids), ()) for row in group.rollouts))
            for group in groups
        ]
        kept = self.algorithm.select(scored).groups
        prompts = [self.policy.prompts.prepare(group.group.sample) for group in kept]
        batch = build_group_batch(prompts, [group.group.rollouts for group in kept])
        batch = batch.with_(advantages=self.algorithm.advantages(kept, batch))
        limit = self.params.max_response_tokens
        objective = self.algorithm.objective(batch, response_limit=limit, first_update=True)
        metrics = self.actor.train_step(batch, objective)
        self.rollout.update_weights(self.actor.weights(), number + 1)
        end = time.perf_counter()
        assert all(len(row.token_ids) == limit for group in groups for row in group.rollouts)
        assert self.rollout.last_stats is not None
        return Timed(sampled - start, end - resumed, self.rollout.last_stats.flops, metrics["flops"])
