"""The cache of decoding: a group's prompt is kept once, and its rows keep only what they said themselves.

Repeating a prompt's keys and values for each of its rows makes every step read them once a row. Here the queries of a
group are put together and read them once: attention over the prompt is one matrix product a prompt, over the rows' own
tokens one a row, and one softmax goes over both, so that the result is that of the repeated cache.

Written in place, without gradients.

P prompts of up to L tokens, B rows, W the rows of the largest group, K key heads, R query heads a key head, D their
size, T a row's own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from mmrl.models import kernels

if TYPE_CHECKING:
    from mmrl.models.prefix import Prefix


@dataclass(frozen=True, eq=False)
class _Layout:
    """Rows as slots of their prompts, (P, W) of them, the last ones of a smaller group empty.

    row_of_slot: (P·W,) int64, some row where the slot is empty. slot_of_row: (B,) int64.
    prompt_of_row: (B,) int64.
    is_full: every group has W rows and rows are in slot order, so that slots are rows.
    """

    num_prompts: int
    width: int
    row_of_slot: Tensor
    slot_of_row: Tensor
    prompt_of_row: Tensor
    is_full: bool

    @classmethod
    def of(cls, prompt_of_row: Tensor, num_prompts: int) -> _Layout:
        """prompt_of_row: (B,) int64, non-decreasing."""
        sizes = prompt_of_row.bincount(minlength=num_prompts)
        width = int(sizes.max())
        rows = torch.arange(len(prompt_of_row), device=prompt_of_row.device)
        slot_of_row = prompt_of_row * width + rows - (sizes.cumsum(0) - sizes)[prompt_of_row]
        row_of_slot = rows.new_zeros(num_prompts * width).index_copy(0, slot_of_row, rows)
        return cls(num_prompts, width, row_of_slot, slot_of_row, prompt_of_row, num_prompts * width == len(rows))

    def to_slots(self, rows: Tensor) -> Tensor:
        """(B, K, R, X) -> (P·K, W·R, X)."""
        slots = rows if self.is_full else rows[self.row_of_slot]
        heads, queries, size = rows.shape[1:]
        slots = slots.view(self.num_prompts, self.width, heads, queries, size).transpose(1, 2)
        return slots.reshape(self.num_prompts * heads, self.width * queries, size)

    def to_rows(self, slots: Tensor, heads: int) -> Tensor:
        """(P·K, W·R, X) -> (B, K, R, X)."""
        size = slots.shape[-1]
        rows = slots.view(self.num_prompts, heads, self.width, -1, size).transpose(1, 2)
        rows = rows.reshape(self.num_prompts * self.width, heads, -1, size)
        return rows if self.is_full else rows[self.slot_of_row]


class GroupLayer(DynamicLayer):
    """Keys and values of prompts (P, K, L, D), shared by their rows, and of the rows (B, K, T, D) in rooms that grow.

    mask: (P·K, 1, L), added to the scores of prompt tokens; None if every prompt has L tokens.
    """

    def __init__(self, prompt_keys: Tensor, prompt_values: Tensor, mask: Tensor | None, layout: _Layout) -> None:
        super().__init__()
        self.is_initialized = True
        self.keys, self.values = prompt_keys, prompt_values
        self._mask = mask
        self._layout = layout
        no_tokens = (len(layout.slot_of_row), prompt_keys.shape[1], 0)
        self._own_keys = prompt_keys.new_empty(*no_tokens, prompt_keys.shape[3])
        self._own_values = prompt_values.new_empty(*no_tokens, prompt_values.shape[3])
        self._num_own = 0
        self._prompt_columns: Tensor | None = None

    def get_seq_length(self) -> int:
        return self.keys.shape[2] + self._num_own

    def reserve(self, num_tokens: int) -> None:
        """Makes room for `num_tokens` more of each row."""
        missing = self._num_own + num_tokens - self._own_keys.shape[2]
        self._own_keys = pad(self._own_keys, (0, 0, 0, missing))
        self._own_values = pad(self._own_values, (0, 0, 0, missing))

    def select(self, rows: Tensor, prompts: Tensor | None, mask: Tensor | None, layout: _Layout) -> None:
        """Keeps the given rows, and the given prompts unless that is all of them."""
        self._own_keys, self._own_values = self._own_keys[rows], self._own_values[rows]
        if prompts is not None:
            self.keys, self.values = self.keys[prompts], self.values[prompts]
            self._prompt_columns = None
        self._mask, self._layout = mask, layout

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Takes one token of each row. Keys and values that attention is given are this layer: it attends itself."""
        self._own_keys[:, :, self._num_own] = key_states[:, :, 0]
        self._own_values[:, :, self._num_own] = value_states[:, :, 0]
        self._num_own += 1
        return self, self

    def attend(self, query: Tensor, scaling: float, *, with_log_sums: bool = False) -> tuple[Tensor, Tensor | None]:
        """query (B, K·R, 1, D) over all that its row has seen: (B, 1, K·R, D).

        Where asked for also, for each query (B, 1, K·R), the logarithm of the sum over what it sees of exp(score).
        """
        needs_graph = torch.is_grad_enabled() and query.requires_grad
        if not needs_graph and kernels.can_attend(query, self.keys, self.values, self._own_keys, self._own_values):
            return self._attend_at_once(query, scaling, with_log_sums=with_log_sums)
        rows, heads, _, dim = query.shape
        key_heads, num_shared = self.keys.shape[1:3]
        keys, values = self._own_keys[:, :, : self._num_own], self._own_values[:, :, : self._num_own]
        query = (query * scaling).to(keys.dtype).reshape(rows, key_heads, heads // key_heads, dim)
        own = self._layout.to_slots(query @ keys.transpose(2, 3))
        prompt_keys, prompt_values = self.keys.flatten(0, 1), self.values.flatten(0, 1)
        grouped = self._layout.to_slots(query)
        if self._mask is None:
            shared = grouped @ prompt_keys.transpose(1, 2)
        else:
            shared = torch.baddbmm(self._mask, grouped, prompt_keys.transpose(1, 2))
        precise = torch.promote_types(values.dtype, torch.float32)
        scores = torch.cat([shared, own], dim=2)
        weights = scores.softmax(-1, dtype=precise)
        log_sums = None
        if with_log_sums:
            # The largest weight is exp(largest score) divided by the sum, and never rounds to zero.
            of_slots = (scores.amax(-1) - weights.amax(-1).log())[..., None]
            log_sums = self._layout.to_rows(of_slots, key_heads).reshape(rows, 1, heads)
        weights = weights.to(values.dtype)
        of_prompt = self._layout.to_rows(weights[:, :, :num_shared] @ prompt_values, key_heads)
        of_own = self._layout.to_rows(weights[:, :, num_shared:], key_heads) @ values
        return (of_prompt + of_own).reshape(rows, 1, heads, values.shape[3]), log_sums

    def _attend_at_once(self, query: Tensor, scaling: float, *, with_log_sums: bool) -> tuple[Tensor, Tensor | None]:
        if self._prompt_columns is None:
            self._prompt_columns = kernels.as_columns(self.keys)
        output, log_sums = kernels.attend_group(
            query[:, :, 0],
            self._prompt_columns,
            self.values,
            self._mask,
            self._layout.prompt_of_row,
            self._own_keys,
            self._own_values,
            self._num_own,
            scaling,
            with_log_sums=with_log_sums,
        )
        return output[:, None], None if log_sums is None else log_sums[:, None]


class GroupCache:
    """The cache that the language model takes, and the rotary position of each row's next token.

    cache: written by every forward pass, which must be of one token a row. next_positions: (B,) int64.
    """

    def __init__(self, prefixes: Sequence[Prefix], prompt_of_row: Tensor) -> None:
        """prefixes: the prompts, prefilled in one part or more. prompt_of_row: (B,) int64, non-decreasing."""
        self._prompt_of_row = prompt_of_row.to(prefixes[0].next_positions.device)
        length = max(prefix.length for prefix in prefixes)
        self._seen = torch.cat([pad(prefix.attention_mask, (0, length - prefix.length)) for prefix in prefixes])
        self.next_positions = torch.cat([prefix.next_positions for prefix in prefixes])[self._prompt_of_row]
        joined = [
            (_join([layer.keys for layer in layers], length), _join([layer.values for layer in layers], length))
            for layers in zip(*(prefix.cache.layers for prefix in prefixes), strict=True)
        ]
        mask, layout = _mask_of(self._seen, joined[0][1]), _Layout.of(self._prompt_of_row, len(self._seen))
        self._layers = [GroupLayer(keys, values, mask, layout) for keys, values in joined]
        self.cache = Cache(layers=self._layers)

    @property
    def num_rows(self) -> int:
        return len(self._prompt_of_row)

    def reserve(self, num_tokens: int) -> None:
        """Makes room for `num_tokens` more of each row."""
        for layer in self._layers:
            layer.reserve(num_tokens)

    def select(self, rows: Tensor) -> None:
        """Keeps the given rows (sorted) and the prompts that they need."""
        prompts, self._prompt_of_row = torch.unique(self._prompt_of_row[rows], return_inverse=True)
        kept = prompts if len(prompts) < len(self._seen) else None
        self._seen, self.next_positions = self._seen[prompts], self.next_positions[rows]
        layout = _Layout.of(self._prompt_of_row, len(self._seen))
        mask = _mask_of(self._seen, self._layers[0].values)
        for layer in self._layers:
            layer.select(rows, kept, mask, layout)


def _join(parts: Sequence[Tensor], length: int) -> Tensor:
    """(P, K, L, D) of several (…, K, up to L, D), filled up with zeros, which are masked."""
    if len(parts) == 1:
        return parts[0].contiguous()
    return torch.cat([pad(part, (0, 0, 0, length - part.shape[2])) for part in parts])


def _mask_of(seen: Tensor, values: Tensor) -> Tensor | None:
    """(P·K, 1, L) of `seen` (P, L) for values (P, K, L, D): 0 where a token may be seen, -inf where there is none."""
    if seen.all():
        return None
    mask = torch.zeros(seen.shape, dtype=values.dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
    return mask.repeat_interleave(values.shape[1], dim=0)[:, None]
