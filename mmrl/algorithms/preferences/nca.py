"""NCA: noise contrastive alignment for pairs (arXiv 2402.05369, table 2). c and j are the implicit rewards.

loss = -log sigma(c) - 1/2 log sigma(-c) - 1/2 log sigma(-j)
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import NcaConfig


class NcaPreference(LogRatioPreference[NcaConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        chosen, rejected = self.rewards(pairs.chosen), self.rewards(pairs.rejected)
        return -logsigmoid(chosen) - 0.5 * logsigmoid(-chosen) - 0.5 * logsigmoid(-rejected)
