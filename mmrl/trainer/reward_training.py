"""The loop that trains a reward model: scores of a chosen and a rejected answer, their prompt forwarded once."""

from __future__ import annotations

from typing import Any

from mmrl.algorithms.reward_model import BradleyTerryObjective
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.base import RewardTrainer
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.loop import Loop
from mmrl.trainer.mean_metrics import MeanMetrics


class RewardModelLoop(Loop):
    def __init__(
        self,
        config: RunConfig,
        *,
        prompts: PromptStream,
        answers: AnswerBatches,
        trainer: RewardTrainer,
        **common: Any,
    ) -> None:
        """common: what `Loop` takes, without actor and sync."""
        super().__init__(config, actor=trainer, sync=lambda version: None, **common)
        self.prompts = prompts
        self.answers = answers
        self.trainer = trainer

    def one_step(self, step: int) -> None:
        """One optimiser step over the next pairs."""
        settings = self.config.reward_model
        batch = self.answers.pairs(self.prompts.next_batch(), margin=settings.margin)
        self.recorder.add(self.prompts.take_metrics())
        with self.recorder.stage("update_reward_model"):
            metrics = MeanMetrics("reward_model")
            metrics.add(self.trainer.train_step(batch, BradleyTerryObjective(batch, centring=settings.centring)))
            self.recorder.add(metrics.means())

    def close_step(self) -> None:
        """Nothing is known of a step beyond its metrics."""
