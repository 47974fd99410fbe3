"""cDPO: DPO where a share eps of the labels is taken to be wrong (Mitchell, 'A note on DPO with noisy preferences').

loss = -(1 - eps) log sigma(Delta) - eps log sigma(-Delta)
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import CdpoConfig


class CdpoPreference(LogRatioPreference[CdpoConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        difference, smoothing = self.differences(pairs), self.config.label_smoothing
        return -(1 - smoothing) * logsigmoid(difference) - smoothing * logsigmoid(-difference)
