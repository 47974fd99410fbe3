"""The hinge loss of SLiC on normalised likelihoods, as RSO has it (arXiv 2309.06657, equation 10).

loss = max(0, 1 - Delta)
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import HingeConfig


class HingePreference(LogRatioPreference[HingeConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        return (1 - self.differences(pairs)).relu()
