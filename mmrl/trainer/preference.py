"""The loop of preferences: answers that were compared, a chosen and a rejected one sharing their prompt and images."""

from __future__ import annotations

from typing import Any

from mmrl.algorithms.preferences import Preference
from mmrl.batch import GroupBatch
from mmrl.config import RunConfig
from mmrl.data.stream import PromptStream
from mmrl.engines.base import Actor
from mmrl.trainer.loop import Loop
from mmrl.trainer.mean_metrics import MeanMetrics
from mmrl.trainer.preference_batches import PreferenceBatches
from mmrl.trainer.throughput import update_throughput


class PreferenceLoop(Loop):
    actor: Actor

    def __init__(
        self,
        config: RunConfig,
        *,
        prompts: PromptStream,
        preference: Preference[Any],
        batches: PreferenceBatches,
        **common: Any,
    ) -> None:
        """common: what `Loop` takes."""
        super().__init__(config, **common)
        self.prompts = prompts
        self.preference = preference
        self.batches = batches

    def one_step(self, step: int) -> None:
        """One optimiser step over the next samples."""
        samples = self.prompts.next_batch()
        self.recorder.add(self.prompts.take_metrics())
        batch = self.batches.make(samples)
        with self.recorder.stage("update_actor"):
            self.recorder.add(self.update(batch))
        if self.evaluator.is_due(step):
            with self.recorder.stage("weight_sync"):
                self.sync(step)

    def update(self, batch: GroupBatch) -> dict[str, float]:
        metrics = MeanMetrics()
        metrics.add(self.actor.train_step(batch, self.preference.objective(batch)))
        means = metrics.means()
        return means | self.preference.observe(means, num_answers=batch.num_rows)

    def close_step(self) -> None:
        """How well the update used the machine."""
        self.recorder.add(update_throughput(self.actor, self.recorder))
