"""From hidden states to log-probabilities: one distribution for sampler, actor, old pass and reference.

logits = head(hidden) / temperature, with the banned ids out, then the softmax. For training only the chosen ids are
needed: log p(id) = logit(id) - logsumexp(logits), which keeps one float32 matrix over the vocabulary and not three.
Where even that one is too large, it is made in chunks that the backward pass computes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK_ELEMENTS = 1 << 26
"""Most float32 logits that exist at once, 256 MiB of them."""

_BANNED_LOGIT = -1e30
"""Finite, so that p · log p of a banned id is 0 and not NaN; its probability is exactly 0 either way."""


@dataclass(frozen=True, eq=False)
class ChosenStats:
    """logprobs and, where asked for, entropy (in nats) of each chosen id: (ids,) float32."""

    logprobs: Tensor
    entropy: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Predictions:
    """hidden: (states, hidden). rows: (ids,) int64, non-decreasing: the state that each chosen id is predicted from."""

    hidden: Tensor
    rows: Tensor

    def split(self, size: int) -> Iterator[tuple[int, Predictions]]:
        """Pieces of up to `size` states, each with the index of its first id. Pieces without ids are left out, but for
        the first where there are no ids at all."""
        if len(self.hidden) <= size or not len(self.rows):
            yield 0, Predictions(self.hidden[:size], self.rows)
            return
        starts = torch.arange(0, len(self.hidden) + size, size, device=self.rows.device)
        bounds = torch.searchsorted(self.rows, starts).tolist()
        for index, (first, last) in enumerate(pairwise(bounds)):
            if first < last:
                start = index * size
                yield first, Predictions(self.hidden[start : start + size], self.rows[first:last] - start)


def log_probs(head: nn.Module, hidden: Tensor, banned_ids: Tensor, temperature: float) -> Tensor:
    """(…, vocabulary) float32 of hidden (…, hidden); banned ids at -inf. Temperature 0 counts as 1."""
    scores = torch.log_softmax(_logits(head, hidden, banned_ids, temperature), dim=-1)
    return scores.index_fill(-1, banned_ids, -torch.inf)


def chosen_stats(
    head: nn.Module,
    predictions: Predictions,
    token_ids: Tensor,
    banned_ids: Tensor,
    temperature: float,
    *,
    with_entropy: bool = False,
) -> ChosenStats:
    """Statistics, with gradients, of `token_ids` (ids,) under the distributions that `predictions` are of."""

    def compute(hidden: Tensor, rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        logits = _logits(head, hidden, banned_ids, temperature)
        total = logits.logsumexp(-1)
        chosen = logits[rows, ids] - total[rows]
        if not with_entropy:
            return chosen, chosen
        return chosen, (total - ((logits - total[:, None]).exp() * logits).sum(-1))[rows]

    size = max(1, CHUNK_ELEMENTS // _vocabulary(head))
    pieces = list(predictions.split(size))
    if len(pieces) == 1:
        parts = [compute(predictions.hidden, predictions.rows, token_ids)]
    else:
        parts = [
            checkpoint(
                compute, piece.hidden, piece.rows, token_ids[start : start + len(piece.rows)], use_reentrant=False
            )
            for start, piece in pieces
        ]
    logprobs = torch.cat([part[0] for part in parts])
    return ChosenStats(logprobs, torch.cat([part[1] for part in parts]) if with_entropy else None)


def _logits(head: nn.Module, hidden: Tensor, banned_ids: Tensor, temperature: float) -> Tensor:
    logits = head(hidden)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if temperature not in (0.0, 1.0):
        # In place: the backward pass of the product does not need its result.
        logits = logits.div_(temperature)
    return logits.index_fill_(-1, banned_ids, _BANNED_LOGIT)


def _vocabulary(head: nn.Module) -> int:
    return head.weight.shape[0]
