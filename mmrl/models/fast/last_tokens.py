"""One token a row of what was computed for all of them.

A prompt is forwarded for its keys and values and for the state of its last token. Its other tokens leave the last layer
nothing but their keys and values, so their queries, attention and MLP there need not be computed, forward or backward.
"""

from __future__ import annotations

import torch
from torch import Tensor


def tokens_of(tensor: Tensor, last_tokens: Tensor) -> Tensor:
    """(rows, 1, …) of (rows, length, …): the token of each row that `last_tokens` (rows,) names."""
    return tensor[torch.arange(len(last_tokens), device=tensor.device), last_tokens][:, None]


def mask_behind(last_tokens: Tensor, length: int, dtype: torch.dtype) -> Tensor | None:
    """(rows, 1, 1, length), added to scores: -inf behind each row's token; None where every row's is the last one."""
    behind = torch.arange(length, device=last_tokens.device) > last_tokens[:, None]
    if not behind.any():
        return None
    return torch.zeros(behind.shape, dtype=dtype, device=behind.device).masked_fill_(behind, -torch.inf)[:, None, None]
