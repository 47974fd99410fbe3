"""Estimators of KL(policy || reference) per sampled token (J. Schulman, 'Approximating KL divergence').

With d = log policy - log reference of a token that the policy sampled:

    k1 = d      k2 = d^2 / 2      k3 = exp(-d) + d - 1
"""

from __future__ import annotations

from torch import Tensor

from mmrl.config.algorithm import KlEstimator

MAX_LOG_DIFFERENCE = 20.0
MAX_K3 = 10.0


def kl_estimate(logprobs: Tensor, reference_logprobs: Tensor, estimator: KlEstimator) -> Tensor:
    """The estimate of each token, of the shape of `logprobs`.

    Only k3 holds an exponential, so only there is d clamped (to +-20) and the result bounded (by 10).
    Used as a loss, k1 has zero expected gradient; k2 has that of the KL (arXiv 2510.01555), k3 its first order.
    """
    difference = logprobs - reference_logprobs
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return difference.square() / 2
    difference = difference.clamp(-MAX_LOG_DIFFERENCE, MAX_LOG_DIFFERENCE)
    return ((-difference).exp() + difference - 1).clamp(max=MAX_K3)
