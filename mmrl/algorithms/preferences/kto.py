"""KTO: Kahneman-Tversky optimisation (arXiv 2402.01306, equations 7 and 8), on answers judged good or bad.

    desirable:    loss = lambda_D · (1 - sigma(beta · (d - z)))
    undesirable:  loss = lambda_U · (1 - sigma(beta · (z - d)))

d is the log ratio of an answer to the reference. z, without gradient, is max(0, the mean log ratio of the update's
answers behind prompts that they do not belong to): taken over the whole update before its loss, so that it depends on
no micro-batch. The loss of an update is the mean over its answers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mmrl.algorithms.preferences.base import AnswersObjective, LogRatioPreference
from mmrl.algorithms.preferences.pairs import Answers, Pairs, answers_of
from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.config.preference import KtoConfig


class KtoPreference(LogRatioPreference[KtoConfig]):
    takes_pairs = False
    needs_baseline = True

    def pair_losses(self, pairs: Pairs) -> Tensor:
        raise NotImplementedError("KTO has a loss of each answer and none of pairs")

    def answer_losses(self, answers: Answers, is_desirable: Tensor, baselines: Tensor) -> Tensor:
        """(answers,): the loss of each; baselines: z."""
        config = self.config
        gain = config.beta * (answers.log_ratios - baselines)
        desirable = config.desirable_weight * (1 - gain.sigmoid())
        undesirable = config.undesirable_weight * (1 - (-gain).sigmoid())
        return torch.where(is_desirable, desirable, undesirable)

    def objective(self, batch: GroupBatch) -> KtoObjective:
        return KtoObjective(self, batch)


class KtoObjective(AnswersObjective):
    """The mean of the losses over the answers of the update."""

    def __init__(self, preference: KtoPreference, batch: GroupBatch) -> None:
        self._preference = preference
        self._num_answers = max(batch.num_rows, 1)

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        assert micro_batch.preferred is not None, "KTO needs to know which answers are good"
        assert micro_batch.baselines is not None, "KTO needs the log ratio of mismatched answers"
        answers = answers_of(micro_batch, stats)
        is_desirable = micro_batch.preferred.to(answers.logprobs.device) > 0
        baselines = micro_batch.baselines.to(answers.logprobs)
        losses = self._preference.answer_losses(answers, is_desirable, baselines)
        return LossOutput(losses.sum() / self._num_answers, self._metrics(answers, is_desirable, losses), {})

    def _metrics(self, answers: Answers, is_desirable: Tensor, losses: Tensor) -> dict[str, tuple[float, float]]:
        """Those of pairs, of good and of bad answers apart. An answer counts as right in accuracies if its implicit
        reward is above that of z for a good one, and below for a bad one."""
        rewards = self._preference.rewards(answers)
        good = is_desirable.double()
        values = {"rewards": rewards, "logps": answers.logprobs, "kl": answers.kl}
        with torch.no_grad():
            sums = [losses.double().sum(), good.sum()]
            for value in values.values():
                sums += [(value.double() * good).sum(), (value.double() * (1 - good)).sum()]
            total, num_good, *rest = torch.stack(sums).tolist()
        num_bad = len(losses) - num_good
        metrics = {"preference/loss": (total, float(len(losses)))}
        for index, name in enumerate(values):
            metrics[f"{name}/chosen"] = (rest[2 * index], num_good)
            metrics[f"{name}/rejected"] = (rest[2 * index + 1], num_bad)
        return metrics


def baseline(log_ratios: Tensor) -> float:
    """z of (answers,) log ratios of mismatched answers."""
    return max(0.0, float(log_ratios.double().mean()))
