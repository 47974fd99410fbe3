"""EXO: efficient exact optimisation (arXiv 2402.00856, equation 16), the reverse KL of the policy's preference to one
that takes the chosen answer with probability 1 - eps.

    loss = sigma(Delta) (log sigma(Delta) - log(1 - eps)) + sigma(-Delta) (log sigma(-Delta) - log eps)
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import logsigmoid

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import ExoConfig


class ExoPreference(LogRatioPreference[ExoConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        difference, smoothing = self.differences(pairs), self.config.label_smoothing
        chosen = difference.sigmoid() * (logsigmoid(difference) - math.log(1 - smoothing))
        rejected = (-difference).sigmoid() * (logsigmoid(-difference) - math.log(smoothing))
        return chosen + rejected
