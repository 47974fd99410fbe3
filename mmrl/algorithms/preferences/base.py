"""`Preference`: what the loop asks of a loss on preferences, and the objective of one optimiser step.

The loop calls, for each step:
    objective(batch)       what the optimiser step minimises; `batch` is the whole update
    observe(metrics)       what the step measured, for a loss that remembers something
and before them gives the batch what `needs_reference` and `needs_baseline` ask for. A loss on pairs is a subclass that
gives `pair_losses`; its mean over the pairs of the update is the loss, whatever the micro-batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from mmrl.algorithms.preferences.pairs import Answers, Pairs, answers_of, pair_rows, pairs_of
from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.config.preference import BetaConfig, PreferenceBase

ConfigT = TypeVar("ConfigT", bound=PreferenceBase)
BetaConfigT = TypeVar("BetaConfigT", bound=BetaConfig)


class Preference(ABC, Generic[ConfigT]):
    """A way to learn from answers that people (or rules) compared.

    takes_pairs: whether every prompt has a chosen and a rejected answer; else answers are judged one by one.
    needs_baseline: whether `GroupBatch.baselines` must be there: see `baseline`.
    """

    takes_pairs: ClassVar[bool] = True
    needs_baseline: ClassVar[bool] = False

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    @property
    def needs_reference(self) -> bool:
        """Whether `GroupBatch.reference_logprobs` must be there."""
        return self.config.needs_reference

    @abstractmethod
    def pair_losses(self, pairs: Pairs) -> Tensor:
        """(pairs,): the loss of each pair."""

    @abstractmethod
    def rewards(self, answers: Answers) -> Tensor:
        """(answers,): the implicit reward of each answer, for metrics and for losses that are made of it."""

    def objective(self, batch: GroupBatch) -> AnswersObjective:
        """What the optimiser step over `batch` minimises; its counts are fixed here, for any micro-batches."""
        return PairObjective(self, batch)

    def observe(self, metrics: Mapping[str, float], *, num_answers: int) -> dict[str, float]:
        """Takes note of what a step measured; returns, as metrics, the numbers that it was made with."""
        return {}


class LogRatioPreference(Preference[BetaConfigT]):
    """A loss whose implicit reward is beta · sum of (log pi - log pi_ref)."""

    def rewards(self, answers: Answers) -> Tensor:
        return self.config.beta * answers.log_ratios

    def differences(self, pairs: Pairs) -> Tensor:
        """Delta = c - j of each pair."""
        return self.rewards(pairs.chosen) - self.rewards(pairs.rejected)


class AnswersObjective(ABC):
    """The objective of one update; `batch` is the whole of it."""

    needs_entropy = False

    @abstractmethod
    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput: ...


class PairObjective(AnswersObjective):
    """The mean of `pair_losses` over the pairs of the update."""

    def __init__(self, preference: Preference[Any], batch: GroupBatch) -> None:
        self._preference = preference
        self._num_pairs = max(len(pair_rows(batch)[0]), 1)

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        pairs = pairs_of(micro_batch, answers_of(micro_batch, stats))
        losses = self._preference.pair_losses(pairs)
        loss = losses.sum() / self._num_pairs
        return LossOutput(loss, pair_metrics(self._preference, pairs, losses), {})


def pair_metrics(preference: Preference[Any], pairs: Pairs, losses: Tensor) -> dict[str, tuple[float, float]]:
    """Sums over the pairs with their count, brought from the device in one copy.

    accuracies: share of pairs whose chosen answer has the larger implicit reward, a tie counting half.
    """
    with torch.no_grad():
        chosen, rejected = preference.rewards(pairs.chosen), preference.rewards(pairs.rejected)
        margins = chosen - rejected
        sums = {
            "preference/loss": losses,
            "rewards/chosen": chosen,
            "rewards/rejected": rejected,
            "rewards/margins": margins,
            "rewards/accuracies": (margins > 0).double() + 0.5 * (margins == 0).double(),
            "logps/chosen": pairs.chosen.logprobs,
            "logps/rejected": pairs.rejected.logprobs,
            "kl/chosen": pairs.chosen.kl,
            "kl/rejected": pairs.rejected.kl,
        }
        values = torch.stack([tensor.double().sum() for tensor in sums.values()]).tolist()
    return {name: (value, float(len(losses))) for name, value in zip(sums, values, strict=True)}
