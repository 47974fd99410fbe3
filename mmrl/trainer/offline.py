"""The SFT loop: the reference answers are the responses, one for each prompt, on the same actor and prefix path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmrl.algorithms.sft import SftObjective
from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.trainer.engines import PromptMaker
from mmrl.trainer.loop import Loop
from mmrl.trainer.mean_metrics import MeanMetrics
from mmrl.trainer.targets import prompt_only, target_text
from mmrl.trainer.throughput import update_throughput
from mmrl.types import Rollout, Sample


class OfflineLoop(Loop):
    def __init__(self, config: RunConfig, *, prompts: PromptStream, processor: PromptMaker, **common: Any) -> None:
        """common: what `Loop` takes."""
        super().__init__(config, **common)
        self.prompts = prompts
        self.processor = processor

    def one_step(self, step: int) -> None:
        """One optimiser step over the next samples."""
        batch = self.make_batch(self.prompts.next_batch())
        self.recorder.add(self.prompts.take_metrics())
        with self.recorder.stage("update_actor"):
            metrics = MeanMetrics()
            metrics.add(self.actor.train_step(batch, SftObjective(batch)))
            self.recorder.add(metrics.means())
        if self.evaluator.is_due(step):
            with self.recorder.stage("weight_sync"):
                self.sync(step)

    def close_step(self) -> None:
        """How well the update used the machine."""
        self.recorder.add(update_throughput(self.actor, self.recorder))

    def make_batch(self, samples: Sequence[Sample]) -> GroupBatch:
        """Prompts prepared, and each sample's target as its only response."""
        prompts = [self.processor.prepare(prompt_only(sample)) for sample in samples]
        return build_group_batch(prompts, [[self._target_rollout(sample)] for sample in samples])

    def _target_rollout(self, sample: Sample) -> Rollout:
        target = target_text(sample)
        token_ids = tuple(self.processor.encode_response(target))
        return Rollout(
            sample_id=sample.id,
            index=0,
            token_ids=token_ids,
            response_mask=(1,) * len(token_ids),
            logprobs=(0.0,) * len(token_ids),
            finish_reason="stop",
            text=target,
            policy_version=0,
            seed=0,
        )
