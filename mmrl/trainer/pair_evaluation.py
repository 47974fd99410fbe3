"""Evaluation on held-out answers that were compared, without sampling any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from mmrl.algorithms.calibration import preference_metrics
from mmrl.algorithms.preferences import Preference
from mmrl.algorithms.reward_model import ScoredPairs
from mmrl.config.offline import RewardModelTraining
from mmrl.engines.base import Actor, RewardTrainer
from mmrl.engines.metric_sums import MetricSums
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.preference_batches import PreferenceBatches
from mmrl.trainer.recorder import Recorder
from mmrl.types import Sample


class Evaluation(Protocol):
    def evaluate(self) -> None: ...


@dataclass(frozen=True)
class Evaluations:
    """Several of them as one, on one schedule. every: steps between them; 0 is at the end only."""

    parts: Sequence[Evaluation]
    every: int
    total_steps: int

    def evaluate_if_due(self, step: int) -> None:
        if self.is_due(step):
            self.evaluate()

    def is_due(self, step: int) -> bool:
        return step == self.total_steps or (self.every > 0 and step % self.every == 0)

    def evaluate(self) -> None:
        for part in self.parts:
            part.evaluate()


@dataclass(frozen=True)
class PreferenceEvaluation:
    """`eval/…` of what the loss and its metrics are on held-out samples, `portion` of them at a time."""

    samples: Sequence[Sample]
    preference: Preference[Any]
    batches: PreferenceBatches
    actor: Actor
    portion: int
    recorder: Recorder

    def evaluate(self) -> None:
        if not self.samples:
            return
        sums = MetricSums()
        with self.recorder.stage("evaluation"):
            for samples in portions(self.samples, self.portion):
                batch = self.batches.make(samples)
                sums.add(self.preference.objective(batch)(batch, self.actor.logprobs(batch)))
        metrics = sums.metrics()
        self.recorder.add({f"eval/{name}": value for name, value in metrics.items()})


@dataclass(frozen=True)
class RewardModelEvaluation:
    """`eval/accuracy`, `eval/margin`, `eval/brier` and `eval/ece` of held-out pairs, and `eval/loss`."""

    samples: Sequence[Sample]
    answers: AnswerBatches
    trainer: RewardTrainer
    settings: RewardModelTraining
    recorder: Recorder

    def evaluate(self) -> None:
        if not self.samples:
            return
        differences, losses = [], []
        with self.recorder.stage("evaluation"):
            for samples in portions(self.samples, self.settings.batch_size):
                batch = self.answers.pairs(samples, margin=self.settings.margin)
                pairs = ScoredPairs.of(batch, self.trainer.scores(batch))
                differences.append(pairs.chosen - pairs.rejected)
                losses.append(pairs.losses(centring=self.settings.centring))
        metrics = preference_metrics(torch.cat(differences)) | {"loss": float(torch.cat(losses).double().mean())}
        self.recorder.add({f"eval/{name}": value for name, value in metrics.items()})


def portions(samples: Sequence[Sample], size: int) -> Iterator[Sequence[Sample]]:
    """At most `size` at a time; a single one that would be left at the end goes with those before it."""
    start = 0
    while start < len(samples):
        end = start + size
        if len(samples) - end == 1:
            end += 1
        yield samples[start:end]
        start = end
