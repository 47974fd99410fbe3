"""APO: anchored preference optimisation (arXiv 2408.06266, equations 4 and 5). c and j are the implicit rewards.

zero: loss = 1 - sigma(c) + sigma(j)           where the chosen answers are better than the policy's
down: loss = sigma(c) + 1 - sigma(c - j)       where the policy's are better than the chosen ones
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.preferences.base import LogRatioPreference
from mmrl.algorithms.preferences.pairs import Pairs
from mmrl.config.preference import ApoDownConfig, ApoZeroConfig


class ApoZeroPreference(LogRatioPreference[ApoZeroConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        return 1 - self.rewards(pairs.chosen).sigmoid() + self.rewards(pairs.rejected).sigmoid()


class ApoDownPreference(LogRatioPreference[ApoDownConfig]):
    def pair_losses(self, pairs: Pairs) -> Tensor:
        return self.rewards(pairs.chosen).sigmoid() + 1 - self.differences(pairs).sigmoid()
