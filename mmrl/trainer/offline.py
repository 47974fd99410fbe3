"""The SFT loop: the turns of a conversation that are learned, behind their prompt, on the same actor."""

from __future__ import annotations

from typing import Any

from mmrl.algorithms.sft import SftObjective
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.base import Actor
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.loop import Loop
from mmrl.trainer.mean_metrics import MeanMetrics
from mmrl.trainer.throughput import update_throughput


class OfflineLoop(Loop):
    actor: Actor

    def __init__(self, config: RunConfig, *, prompts: PromptStream, answers: AnswerBatches, **common: Any) -> None:
        """common: what `Loop` takes."""
        super().__init__(config, **common)
        self.prompts = prompts
        self.answers = answers

    def one_step(self, step: int) -> None:
        """One optimiser step over the next samples."""
        batch = self.answers.targets(self.prompts.next_batch(), train_on=self.config.sft.train_on)
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
