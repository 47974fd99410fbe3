"""The attention of the language model: torch's fused kernels, keys and values never repeated for grouped queries.

transformers' own `sdpa` repeats keys and values for every group of query heads as soon as there is a mask. In
decoding, which does nothing but read the cache, that multiplies the work; on two cores and the 'small' model it takes
five times as long.

It is registered under `ATTENTION` and takes a mask that is ready (rows, 1, queries, keys) and added to the scores, or
None: for as many queries as keys that means causal, for a single query that it sees every key. By a mask, too, the last
query sees every key at most, and each one before it one key less: gradients are computed for no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mmrl.models.fused_attention import attention
from mmrl.models.group_cache import GroupLayer
from mmrl.models.lean_imports import modeling_utils

ATTENTION = "mmrl"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor | GroupLayer,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    segment_lengths: Sequence[int] | None = None,
    with_log_sums: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """query (rows, heads, queries, dim) over key and value (rows, kv_heads, keys, dim): (rows, queries, heads, dim).

    segment_lengths: the row is made of sequences of these lengths, each of which sees only itself. They are attended to
    one by one, which takes no more products than they have by themselves.

    In decoding over a `GroupCache` its layer comes as key and value, and attends itself; with_log_sums: then it also
    gives, second, the logarithms of the sums that its weights were divided by.
    """
    if isinstance(key, GroupLayer):
        return key.attend(query, query.shape[-1] ** -0.5 if scaling is None else scaling, with_log_sums=with_log_sums)
    if segment_lengths is not None:
        parts = zip(*(each.split(list(segment_lengths), dim=2) for each in (query, key, value)), strict=True)
        own = [attend(module, q, k, v, None, scaling=scaling, dropout=dropout)[0] for q, k, v in parts]
        return torch.cat(own, dim=1), None
    num_queries, num_keys = query.shape[2], key.shape[2]
    groups = query.shape[1] // key.shape[1]
    if num_queries == 1:
        return _attend_one(query, key, value, attention_mask, scaling, dropout), None
    is_causal = attention_mask is None
    assert not is_causal or num_queries == num_keys, "queries over a longer cache need a mask"
    if groups > 1 and attention_mask is not None and query.is_cuda:
        # Of CUDA's fused kernels none takes a mask and grouped queries at once.
        key, value, groups = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), 1
    output = attention(query, key, value, attention_mask, is_causal=is_causal, scaling=scaling, dropout=dropout)
    return output.transpose(1, 2), None


def _attend_one(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, scaling: float | None, dropout: float
) -> Tensor:
    """A single query a row: the query heads that share a key head become the queries of one head."""
    rows, heads, _, dim = query.shape
    folded = query.reshape(rows, key.shape[1], heads // key.shape[1], dim)
    output = scaled_dot_product_attention(
        folded, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling
    )
    return output.reshape(rows, 1, heads, output.shape[-1])


modeling_utils.ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attend)
