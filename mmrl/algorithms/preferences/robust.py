"""Robust DPO (arXiv 2403.00409, equation 8): unbiased where a share eps of the labels is wrong.

loss = (-(1 - eps) log sigma(Delta) + eps log sigma(-Delta)) / (1 - 2 eps)
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import RobustConfig


class RobustPreference(LogRatioPreference[RobustConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        difference, smoothing = self.differences(pairs), self.config.label_smoothing
        mixed = -(1 - smoothing) * logsigmoid(difference) + smoothing * logsigmoid(-difference)
        return mixed / (1 - 2 * smoothing)
