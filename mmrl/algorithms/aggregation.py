"""How token losses add up to one loss.

Each way is a weight for every sampled token, made from counts of the whole update (one optimiser step over all of
its micro-batches and ranks). So the loss of an update is a plain sum over tokens, and its gradient does not depend on
how the tokens are divided into micro-batches, padded, ordered or spread over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from mmrl.batch import GroupBatch
from mmrl.config.algorithm import LossAggregation


@dataclass(frozen=True)
class UpdateCounts:
    """Of one whole update.

    num_tokens: N, sampled tokens. num_sequences: S, responses with at least one sampled token.
    response_limit: the longest response allowed, in tokens.
    """

    num_tokens: int
    num_sequences: int
    response_limit: int

    @classmethod
    def of(cls, batch: GroupBatch, *, response_limit: int) -> UpdateCounts:
        """The counts of a batch that is one whole update."""
        return cls(batch.num_sampled_tokens, batch.num_sequences, response_limit)


def token_weights(mask: Tensor, aggregation: LossAggregation, counts: UpdateCounts) -> Tensor:
    """The weight of each token's loss, (B, T), zero where mask is 0. With M the mask of one response:

        token_mean                 M / N
        sequence_mean_token_sum    M / S
        sequence_mean_token_mean   M / (S * sum of M)
        constant                   M / (S * response limit)

    A response without a sampled token has no weight anywhere and counts in neither N nor S.
    """
    if aggregation == "token_mean":
        return mask / max(counts.num_tokens, 1)
    per_sequence = mask / max(counts.num_sequences, 1)
    if aggregation == "sequence_mean_token_sum":
        return per_sequence
    if aggregation == "constant":
        return per_sequence / counts.response_limit
    return per_sequence / mask.sum(-1, keepdim=True).clamp(min=1)
