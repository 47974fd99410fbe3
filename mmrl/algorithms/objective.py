"""What one optimiser step of a policy-gradient algorithm minimises.

For each sampled token: policy loss + kl.coef * KL to the reference - entropy_coef * entropy, weighted so that the sum
over all micro-batches of the update is the loss of the update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from mmrl.algorithms.aggregation import UpdateCounts, token_weights
from mmrl.algorithms.kl import kl_estimate
from mmrl.algorithms.metrics import TokenMetrics
from mmrl.algorithms.policy_losses import PolicyLoss, PolicyTokens
from mmrl.algorithms.ratio import log_ratio
from mmrl.algorithms.steering import EntropyWeight
from mmrl.batch import GroupBatch, LossOutput, TokenStats
from mmrl.config.algorithm import PolicyGradientConfig


class LossTerm(Protocol):
    """A term of the loss beside those that all algorithms know; `name` is the metric of its part of the loss."""

    name: str

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> Tensor:
        """The micro-batch's part of the update's term, a scalar."""
        ...


class PolicyObjective:
    """The objective of one update.

    counts: of the whole update. first_update: no optimiser step has been made since the responses were sampled, so
    old logprobs may be absent and the KL term needs no importance weight.
    kl_coef, entropy_weight: the weights of the two terms as they are now, which may differ from the config's.
    extra_terms: further terms of the loss.
    """

    def __init__(
        self,
        config: PolicyGradientConfig,
        policy_loss: Callable[[PolicyTokens], PolicyLoss],
        *,
        counts: UpdateCounts,
        first_update: bool,
        kl_coef: float,
        entropy_weight: EntropyWeight,
        extra_terms: Sequence[LossTerm] = (),
    ) -> None:
        self.needs_entropy = entropy_weight.is_used
        self._entropy_coef = entropy_weight.value
        self._kl_coef = kl_coef
        self._config = config
        self._policy_loss = policy_loss
        self._counts = counts
        self._first_update = first_update
        self._extra_terms = extra_terms

    def __call__(self, micro_batch: GroupBatch, stats: TokenStats) -> LossOutput:
        """The micro-batch's part of the loss and its metrics. Its rows are whole responses, in any order."""
        tokens = self._tokens(micro_batch, stats)
        policy = self._policy_loss(tokens)
        weights = token_weights(tokens.mask, self._config.loss_aggregation, self._counts)
        metrics = TokenMetrics(tokens.mask, num_tokens_of_update=self._counts.num_tokens)
        loss = (policy.token_losses * weights).sum()
        metrics.part("actor/policy_loss", loss)
        for name, flagged in policy.flags.items():
            metrics.mean(f"actor/{name}", flagged.to(weights.dtype))
        _add_ratio_metrics(metrics, tokens)
        loss = loss + self._kl_term(micro_batch, tokens, weights, metrics)
        loss = loss + self._entropy_term(stats, tokens, weights, metrics)
        for extra in self._extra_terms:
            term = extra(micro_batch, stats)
            metrics.part(extra.name, term)
            loss = loss + term
        metrics.part("actor/loss", loss)
        return metrics.output(loss)

    def _tokens(self, batch: GroupBatch, stats: TokenStats) -> PolicyTokens:
        assert batch.advantages is not None, "advantages are computed before the update, over its whole batch"
        assert self._first_update or batch.old_logprobs is not None, "a later update needs the logprobs of its start"
        device = stats.logprobs.device
        mask = batch.response_mask.to(device)
        old = None if batch.old_logprobs is None else batch.old_logprobs.to(device)
        return PolicyTokens(
            logprobs=stats.logprobs,
            log_ratio=log_ratio(stats.logprobs, old, mask),
            advantages=batch.advantages.to(device),
            mask=mask,
        )

    def _kl_term(self, batch: GroupBatch, tokens: PolicyTokens, weights: Tensor, metrics: TokenMetrics) -> Tensor:
        """coef * KL, in the loss only.

        After the first update the tokens come from an older policy than the one that the KL is of, so the term
        carries the ratio as a weight without gradient: its expected gradient stays that of the first update
        (arXiv 2510.01555 on use off policy).
        """
        kl = self._config.kl
        if kl.coef == 0:
            return weights.new_zeros(())
        assert batch.reference_logprobs is not None, "a KL term needs reference logprobs"
        reference = batch.reference_logprobs.to(weights.device)
        metrics.mean("actor/kl_reference", kl_estimate(tokens.logprobs.detach(), reference, "k3"))
        if kl.where == "reward":
            return weights.new_zeros(())
        term = kl_estimate(tokens.logprobs, reference, kl.estimator)
        if not self._first_update:
            term = term * tokens.log_ratio.detach().exp()
        loss = self._kl_coef * (term * weights).sum()
        metrics.part("actor/kl_loss", loss)
        return loss

    def _entropy_term(self, stats: TokenStats, tokens: PolicyTokens, weights: Tensor, metrics: TokenMetrics) -> Tensor:
        """-coef * entropy. Without exact entropies, minus the mean logprob of what was sampled estimates them."""
        metrics.mean("actor/entropy_estimate", -tokens.logprobs)
        if stats.entropy is not None:
            metrics.mean("actor/entropy", stats.entropy)
        if self._entropy_coef == 0:
            return weights.new_zeros(())
        assert stats.entropy is not None, "an entropy bonus needs the entropy of each token"
        return -self._entropy_coef * (stats.entropy * weights).sum()


def _add_ratio_metrics(metrics: TokenMetrics, tokens: PolicyTokens) -> None:
    """approx_kl is k3 of KL(old || current): r - 1 - log r."""
    log_r = tokens.log_ratio.detach()
    ratio = log_r.exp()
    metrics.mean("actor/ratio_mean", ratio)
    metrics.maximum("actor/ratio_max", ratio)
    metrics.mean("actor/approx_kl", ratio - 1 - log_r)
