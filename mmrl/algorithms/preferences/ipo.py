"""IPO: identity preference optimisation (arXiv 2310.12036, equation 17).

    loss = (h - 1 / (2 beta))^2,  h = log ratio of the chosen answer - log ratio of the rejected one

length_average: h of mean log ratios over an answer's tokens; the authors recommend it, the paper does not have it.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Answers, Pairs
from mmrl.config.preference import IpoConfig


class IpoPreference(LogRatioPreference[IpoConfig]):
    def rewards(self, answers: Answers) -> Tensor:
        ratios = answers.mean_log_ratios if self.config.length_average else answers.log_ratios
        return self.config.beta * ratios

    def pair_losses(self, pairs: Pairs) -> Tensor:
        beta = self.config.beta
        return (self.differences(pairs) / beta - 1 / (2 * beta)).square()
