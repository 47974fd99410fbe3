"""ReMax (arXiv 2310.10505): REINFORCE against what the policy would most likely have answered.

    A = R - R of the greedy response to the same prompt, the same for every token of a response
    loss: -A log of the whole response's probability, that is summed over tokens, the mean over sequences

The greedy response is sampled beside the others and scored; it is not learned from. A prompt whose greedy response has
no score is left out. Departure: the loss is PPO's clipped surrogate, whose gradient in the first optimiser step after
sampling is the paper's.
"""

from __future__ import annotations

from torch import Tensor

from mmrl.algorithms.base import ClippedAlgorithm, GroupScores
from mmrl.config.algorithm import RemaxConfig


class RemaxAlgorithm(ClippedAlgorithm[RemaxConfig]):
    def group_advantages(self, group: GroupScores) -> Tensor:
        greedy = group.group.greedy_reward
        assert greedy is not None, f"sample {group.group.group.sample.id} has no greedy response to compare with"
        assert greedy.total is not None, f"sample {group.group.group.sample.id} has no score of its greedy response"
        return group.returns - greedy.total
