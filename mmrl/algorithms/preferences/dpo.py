"""DPO: direct preference optimisation (arXiv 2305.18290, equation 7).

loss = -log sigma(Delta),  Delta = beta · (log ratio of the chosen answer - log ratio of the rejected one)
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import DpoConfig


class DpoPreference(LogRatioPreference[DpoConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        return -logsigmoid(self.differences(pairs))
