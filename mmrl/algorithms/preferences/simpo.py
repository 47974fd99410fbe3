"""SimPO: simple preference optimisation (arXiv 2405.14734, equation 6), without a reference.

loss = -log sigma(r(chosen) - r(rejected) - gamma),  r = beta · mean log-probability of the answer's tokens
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import Preference
from mmrl.algorithms.preferences.pairs import Answers, Pairs
from mmrl.config.preference import SimpoConfig


class SimpoPreference(Preference[SimpoConfig]):
    def rewards(self, answers: Answers) -> Tensor:
        return self.config.beta * answers.mean_logprobs

    def pair_losses(self, pairs: Pairs) -> Tensor:
        return -logsigmoid(self.rewards(pairs.chosen) - self.rewards(pairs.rejected) - self.config.gamma)
