"""`Prefix`: what has been forwarded of each row, ready to be extended by more tokens.

Rows are filled up on the right, so a row's cache may have gaps: behind its prompt, and behind each extension that was
shorter than its neighbours'. A gap is masked, and positions count without it, so the result is that of the row alone.

A prefix is never changed: extending, expanding and selecting give a new one, and gradients flow through all three.
Decoding, which needs no gradients and extends by one token at a time, has a cache of its own (`group_cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import Cache
from transformers.cache_utils import DynamicLayer


@dataclass(frozen=True, eq=False)
class _Choice:
    """Rows of a tensor: row i of the result is row `rows[i]`. repeats: `rows` is each row so many times, in order."""

    rows: Tensor
    repeats: int | None

    @classmethod
    def of(cls, rows: Tensor, num_rows: int) -> _Choice:
        repeats, rest = divmod(len(rows), max(num_rows, 1))
        if rest or not repeats:
            return cls(rows, None)
        expected = torch.arange(num_rows, device=rows.device).repeat_interleave(repeats)
        return cls(rows, repeats if torch.equal(rows, expected) else None)

    def take(self, tensor: Tensor) -> Tensor:
        """Repeating by expansion has a gradient that is one sum, with one result on every device."""
        if self.repeats is None:
            return tensor.index_select(0, self.rows)
        return tensor[:, None].expand(-1, self.repeats, *tensor.shape[1:]).flatten(0, 1)

    def take_with(self, tensor: Tensor, own: Tensor) -> Tensor:
        """The rows (rows, heads, length, dim) with `own` behind each, written once."""
        if self.repeats is None:
            return torch.cat([self.take(tensor), own], dim=2)
        shared = tensor[:, None].expand(-1, self.repeats, *tensor.shape[1:])
        return torch.cat([shared, own.unflatten(0, (-1, self.repeats))], dim=3).flatten(0, 1)


class KeyValueLayer(DynamicLayer):
    """Keys and values (rows, kv_heads, length, dim) of one layer.

    choice: the layer's rows are these of `keys` and `values`; they are only put in place when the layer grows, so that
    repeated prompts of one layer exist at a time.
    """

    keys: Any
    values: Any

    def __init__(self, keys: Tensor | None = None, values: Tensor | None = None, choice: _Choice | None = None) -> None:
        super().__init__()
        self.keys, self.values, self.choice = keys, values, choice
        self.is_initialized = keys is not None

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        # Under autocast rotated keys are float32 and values are not; attention would round the keys anyway.
        key_states = key_states.to(value_states.dtype)
        if self.keys is None:
            self.keys, self.values = key_states, value_states
        elif self.choice is not None:
            self.keys = self.choice.take_with(self.keys, key_states)
            self.values = self.choice.take_with(self.values, value_states)
        else:
            self.keys = torch.cat([self.keys, key_states], dim=2)
            self.values = torch.cat([self.values, value_states], dim=2)
        self.choice = None
        self.is_initialized = True
        return self.keys, self.values

    def branch(self) -> KeyValueLayer:
        """A layer that starts with the same keys and values, and grows by itself."""
        return KeyValueLayer(self.keys, self.values, self.choice)

    def cut(self, length: int) -> KeyValueLayer:
        """The first `length` columns."""
        return KeyValueLayer(self.keys[:, :, :length], self.values[:, :, :length], self.choice)

    def take(self, choice: _Choice) -> KeyValueLayer:
        if self.choice is None:
            return KeyValueLayer(self.keys, self.values, choice)
        return KeyValueLayer(self.choice.take(self.keys), self.choice.take(self.values), choice)

    def in_place(self) -> KeyValueLayer:
        """The same with its rows put in place."""
        if self.choice is None:
            return self
        return KeyValueLayer(self.choice.take(self.keys), self.choice.take(self.values))


@dataclass(frozen=True, eq=False)
class Prefix:
    """Rows that have been forwarded, of `length` columns of the cache each.

    cache: keys and values of every layer.
    attention_mask: (rows, length) bool, False where a column holds no token of the row.
    next_positions: (rows,) int64, rotary position of each row's next token.
    last_hidden: (rows, hidden) of each row's last token.
    has_gaps: whether attention_mask is False anywhere.
    """

    cache: Cache
    attention_mask: Tensor
    next_positions: Tensor
    last_hidden: Tensor
    has_gaps: bool

    @property
    def num_rows(self) -> int:
        return self.attention_mask.shape[0]

    @property
    def length(self) -> int:
        return self.attention_mask.shape[1]

    @property
    def device(self) -> torch.device:
        return self.next_positions.device

    def tensors(self) -> list[Tensor]:
        """All that gradients flow through: keys and values of each layer, then last_hidden."""
        layers = [tensor for layer in self.cache.layers for tensor in (layer.keys, layer.values)]
        return [*layers, self.last_hidden]

    def detached(self, *, requires_grad: bool = False) -> Prefix:
        """The same without its graph. requires_grad: as leaves, where this one's tensors require gradients."""
        *states, last_hidden = (
            tensor.detach().requires_grad_(requires_grad and tensor.requires_grad) for tensor in self.tensors()
        )
        layers = [KeyValueLayer(keys, values) for keys, values in zip(states[::2], states[1::2], strict=True)]
        return replace(self, cache=Cache(layers=layers), last_hidden=last_hidden)

    def cut(self, length: int) -> Prefix:
        """Only the first `length` columns, behind which no row may have a token."""
        if length == self.length:
            return self
        mask = self.attention_mask[:, :length]
        cache = Cache(layers=[layer.cut(length) for layer in self.cache.layers])
        return replace(self, cache=cache, attention_mask=mask, has_gaps=not bool(mask.all()))

    def padded(self, length: int) -> Prefix:
        """With empty columns behind, `length` in all."""
        missing = length - self.length
        if not missing:
            return self
        layers = [
            KeyValueLayer(pad(layer.keys, (0, 0, 0, missing)), pad(layer.values, (0, 0, 0, missing)))
            for layer in self.cache.layers
        ]
        mask = pad(self.attention_mask, (0, missing))
        return replace(self, cache=Cache(layers=layers), attention_mask=mask, has_gaps=True)

    def expand(self, prompt_of_row: Tensor) -> Prefix:
        """Row i of the result is row `prompt_of_row[i]` of this one; the rows of one prompt should be adjacent."""
        return self._take(prompt_of_row.to(self.next_positions.device))

    def select(self, rows: Tensor) -> Prefix:
        """Only the given rows, in that order."""
        chosen = self._take(rows.to(self.next_positions.device))
        return replace(chosen, cache=Cache(layers=[layer.in_place() for layer in chosen.cache.layers]))

    def mask_for(self, num_tokens: int, dtype: torch.dtype) -> Tensor | None:
        """(rows, 1, num_tokens, length + num_tokens) to add to the scores of tokens that follow; None: all is seen."""
        if num_tokens == 1 and not self.has_gaps:
            return None
        own = torch.ones(num_tokens, num_tokens, dtype=torch.bool, device=self.attention_mask.device).tril()
        seen = self.attention_mask[:, None, :].expand(-1, num_tokens, -1)
        return _added_mask(torch.cat([seen, own.expand(self.num_rows, -1, -1)], dim=2)[:, None], dtype)

    def extended(self, cache: Cache, hidden: Tensor, lengths: Tensor | None) -> Prefix:
        """This prefix after `hidden` (rows, tokens, hidden) was computed into `cache`; `lengths` of it are real."""
        num_tokens = hidden.shape[1]
        if lengths is None:
            real = torch.ones(self.num_rows, num_tokens, dtype=torch.bool, device=hidden.device)
            last_hidden, next_positions = hidden[:, -1], self.next_positions + num_tokens
        else:
            real = torch.arange(num_tokens, device=hidden.device) < lengths[:, None]
            rows = torch.arange(self.num_rows, device=hidden.device)
            last = hidden[rows, (lengths - 1).clamp(min=0)]
            last_hidden = torch.where((lengths > 0)[:, None], last, self.last_hidden)
            next_positions = self.next_positions + lengths
        return Prefix(
            cache=cache,
            attention_mask=torch.cat([self.attention_mask, real], dim=1),
            next_positions=next_positions,
            last_hidden=last_hidden,
            has_gaps=self.has_gaps or lengths is not None,
        )

    def branch(self) -> Cache:
        """A cache that starts with this prefix's and may be written to."""
        return Cache(layers=[layer.branch() for layer in self.cache.layers])

    def _take(self, rows: Tensor) -> Prefix:
        choice = _Choice.of(rows, self.num_rows)
        return Prefix(
            cache=Cache(layers=[layer.take(choice) for layer in self.cache.layers]),
            attention_mask=self.attention_mask[rows],
            next_positions=self.next_positions[rows],
            last_hidden=choice.take(self.last_hidden),
            has_gaps=self.has_gaps,
        )


def join_prefixes(parts: Sequence[Prefix]) -> Prefix:
    """The rows of all parts, one part after another."""
    if len(parts) == 1:
        return parts[0]
    length = max(part.length for part in parts)
    parts = [part.padded(length) for part in parts]
    layers = [
        KeyValueLayer(torch.cat([layer.keys for layer in same]), torch.cat([layer.values for layer in same]))
        for same in zip(*(part.cache.layers for part in parts), strict=True)
    ]
    return Prefix(
        cache=Cache(layers=layers),
        attention_mask=torch.cat([part.attention_mask for part in parts]),
        next_positions=torch.cat([part.next_positions for part in parts]),
        last_hidden=torch.cat([part.last_hidden for part in parts]),
        has_gaps=any(part.has_gaps for part in parts),
    )


def empty_cache() -> Cache:
    return Cache(layer_class_to_replicate=KeyValueLayer)


def _added_mask(may_attend: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a key may be seen and -inf elsewhere, in the shape of `may_attend`."""
    return torch.zeros(may_attend.shape, dtype=dtype, device=may_attend.device).masked_fill_(~may_attend, -torch.inf)
