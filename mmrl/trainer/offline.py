"""The SFT loop: the reference answers are the responses, one for each prompt, on the same actor and prefix path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.algorithms.sft import SftObjective
from mmrl.batch import GroupBatch, build_group_batch
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.actor import HfActor
from mmrl.models.processing import PromptProcessor
from mmrl.trainer.checkpoints import Checkpointer
from mmrl.trainer.evaluation import Evaluator
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.targets import prompt_only, target_text
from mmrl.types import Rollout, Sample


@dataclass(frozen=True)
class OfflineParts:
    prompts: PromptStream
    processor: PromptProcessor
    actor: HfActor
    evaluator: Evaluator
    checkpointer: Checkpointer


class OfflineLoop:
    def __init__(self, config: RunConfig, parts: OfflineParts, recorder: Recorder) -> None:
        self.config = config
        self.parts = parts
        self.recorder = recorder

    def run(self, first_step: int) -> None:
        """Steps first_step..train.steps, with evaluation and checkpoints where they are due."""
        if first_step == 1 and self.config.eval.at_start:
            self.recorder.begin(0)
            self.parts.evaluator.evaluate()
            self.recorder.end()
        for step in range(first_step, self.config.train.steps + 1):
            self.recorder.begin(step)
            self.parts.actor.begin_step(step)
            with self.recorder.stage("step"):
                self.one_step()
                self.parts.evaluator.evaluate_if_due(step)
            self.parts.checkpointer.save_if_due(step)
            self.recorder.end()

    def one_step(self) -> None:
        batch = self.make_batch(self.parts.prompts.next_batch())
        with self.recorder.stage("update_actor"):
            self.recorder.add(self.parts.actor.train_step(batch, SftObjective(batch)))

    def make_batch(self, samples: Sequence[Sample]) -> GroupBatch:
        """Prompts prepared, and each sample's target as its only response."""
        prompts = [self.parts.processor.prepare(prompt_only(sample)) for sample in samples]
        return build_group_batch(prompts, [[self._target_rollout(sample)] for sample in samples])

    def _target_rollout(self, sample: Sample) -> Rollout:
        target = target_text(sample)
        token_ids = tuple(self.parts.processor.encode_response(target))
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
