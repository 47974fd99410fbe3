"""ORPO: odds ratio preference optimisation (arXiv 2403.07691, equations 6 and 7), without a reference.

    loss = NLL(chosen) - lambda · log sigma(log odds(chosen) - log odds(rejected))

NLL is the mean over the answer's tokens, and odds = p / (1 - p) of p = exp(mean log-probability of its tokens).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import Preference
from mmrl.algorithms.preferences.pairs import Answers, Pairs
from mmrl.config.preference import OrpoConfig


class OrpoPreference(Preference[OrpoConfig]):
    def rewards(self, answers: Answers) -> Tensor:
        return self.config.odds_weight * answers.mean_logprobs

    def pair_losses(self, pairs: Pairs) -> Tensor:
        difference = log_odds(pairs.chosen.mean_logprobs) - log_odds(pairs.rejected.mean_logprobs)
        return -pairs.chosen.mean_logprobs - self.config.odds_weight * logsigmoid(difference)


def log_odds(logprobs: Tensor) -> Tensor:
    """log p - log(1 - p) of log p. Where p is 1 to rounding, 1 - p counts as the smallest step below 1."""
    below_one = logprobs.clamp(max=-torch.finfo(logprobs.dtype).eps)
    return logprobs - torch.log(-torch.expm1(below_one))
