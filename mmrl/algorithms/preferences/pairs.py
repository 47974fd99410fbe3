"""What losses on preferences are made of: answers as whole sequences, and pairs of a chosen and a rejected one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mmrl.algorithms.kl import kl_estimate
from mmrl.batch import GroupBatch, TokenStats


@dataclass(frozen=True, eq=False)
class Answers:
    """Each (answers,), on the policy's device, over the tokens that the policy is to write.

    logprobs: sum of log pi. log_ratios: sum of log pi - log pi_ref, zero without a reference. lengths: tokens.
    kl: sum of the k3 estimate of the KL to the reference (`algorithms.kl`) at each token, without gradient.
    """

    logprobs: Tensor
    log_ratios: Tensor
    lengths: Tensor
    kl: Tensor

    @property
    def mean_logprobs(self) -> Tensor:
        return self.logprobs / self.lengths

    @property
    def mean_log_ratios(self) -> Tensor:
        return self.log_ratios / self.lengths

    def select(self, rows: Tensor) -> Answers:
        return Answers(self.logprobs[rows], self.log_ratios[rows], self.lengths[rows], self.kl[rows])


@dataclass(frozen=True, eq=False)
class Pairs:
    """Answer i of `chosen` and of `rejected` are of one prompt."""

    chosen: Answers
    rejected: Answers


def answers_of(batch: GroupBatch, stats: TokenStats) -> Answers:
    """The rows of a micro-batch. Ratios are taken token by token, which loses less than a difference of sums."""
    mask = batch.response_mask.to(stats.logprobs)
    logprobs = stats.logprobs * mask
    lengths = mask.sum(-1).clamp(min=1)
    if batch.reference_logprobs is None:
        zeros = torch.zeros_like(logprobs[:, 0]) if logprobs.shape[1] else logprobs.sum(-1)
        return Answers(logprobs.sum(-1), zeros, lengths, zeros)
    ratios = logprobs - batch.reference_logprobs.to(stats.logprobs) * mask
    with torch.no_grad():
        kl = (kl_estimate(logprobs, batch.reference_logprobs.to(logprobs), "k3") * mask).sum(-1)
    return Answers(logprobs.sum(-1), ratios.sum(-1), lengths, kl)


def pairs_of(batch: GroupBatch, answers: Answers) -> Pairs:
    """The pairs of a micro-batch of whole groups, in the order of its prompts."""
    chosen, rejected = pair_rows(batch)
    device = answers.logprobs.device
    return Pairs(answers.select(chosen.to(device)), answers.select(rejected.to(device)))


def pair_rows(batch: GroupBatch) -> tuple[Tensor, Tensor]:
    """The rows of chosen and of rejected answers, (pairs,) each, pair i of both being answers to one prompt.

    Rows that `preferred` has below zero are in no pair.
    """
    assert batch.preferred is not None, "a loss on pairs needs to know which answer was chosen"
    order = batch.prompt_of_row.argsort(stable=True)
    chosen, rejected = order[batch.preferred[order] > 0], order[batch.preferred[order] == 0]
    assert torch.equal(batch.prompt_of_row[chosen], batch.prompt_of_row[rejected]), "a pair was torn apart"
    return chosen, rejected
