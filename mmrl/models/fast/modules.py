"""Which modules of a transformers model are computed otherwise: each gets a subclass of its own class.

Recognised by what they hold, not by family: the language models of Qwen2, Qwen3, Llama and the Qwen-VL series are made
of the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.models.attention import attend
from mmrl.models.fast.functions import (
    can_use_onednn,
    gated,
    gated_linear,
    gated_product,
    linear,
    rms_norm,
    rotate,
    rotate_packed,
)
from mmrl.models.fast.last_tokens import mask_behind, tokens_of
from mmrl.models.fast.outputs import pass_outputs
from mmrl.models.fast.packed import packed_weight
from mmrl.models.fused_attention import attend_within, attention_of_known


def make_fast(model: nn.Module) -> None:
    """Changes the classes of `model`'s modules in place; parameters, their names and the result stay."""
    for module in list(model.modules()):
        behaviour = _behaviour_for(module)
        if behaviour is not None:
            with_behaviour(module, behaviour)


def with_behaviour(module: nn.Module, behaviour: type[nn.Module]) -> None:
    """Puts `behaviour` before the module's own class, whose methods it can call by `super()`."""
    module.__class__ = _subclass(behaviour, type(module))


class FastLinear(nn.Module):
    """Outputs that accompany a pass (`outputs`) are taken and written down in float32 on the CPU alone."""

    weight: Tensor
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        if not can_use_onednn(x, self.weight):
            return nn.functional.linear(x, self.weight, self.bias)
        outputs, weight = pass_outputs(), packed_weight(self)
        if outputs is None:
            return linear(x, weight, self.bias)
        output = linear(x, weight, self.bias, outputs.known(self))
        outputs.note(self, output)
        return output


class FastRmsNorm(nn.Module):
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)


class FastGatedMlp(nn.Module):
    """down(silu(gate(x)) · up(x)). Linear maps that something else has taken the place of (adapters) are called."""

    def forward(self: Any, x: Tensor) -> Tensor:
        maps = (self.gate_proj, self.up_proj, self.down_proj)
        gate, up, down = maps
        is_plain = all(isinstance(part, FastLinear) for part in maps) and can_use_onednn(x, down.weight)
        outputs = pass_outputs()
        is_watched = outputs is not None or bool(gate._forward_hooks or up._forward_hooks)
        if is_plain and not is_watched and not torch.is_grad_enabled():
            return down(gated(x, (packed_weight(gate), gate.bias), (packed_weight(up), up.bias)))
        if is_plain and torch.is_grad_enabled():
            known = None if outputs is None else outputs.known(down)
            return gated_linear(gate(x), up(x), down.weight, down.bias, known)
        return down(gated_product(gate(x), up(x)))


class FastDecoderLayer(nn.Module):
    """A layer of a language model.

    last_tokens: (rows,) int64, for passes of which nothing but the last layer's keys and values and one state a row is
    needed: the last layer then computes queries, attention and what follows for these tokens only, (rows, 1, hidden).
    """

    def forward(
        self: Any, hidden_states: Tensor, *arguments: Any, last_tokens: Tensor | None = None, **named: Any
    ) -> Tensor:
        attention = self.self_attn
        if last_tokens is None or attention.layer_idx + 1 < attention.config.num_hidden_layers:
            return super().forward(hidden_states, *arguments, **named)
        attended, _ = attention(self.input_layernorm(hidden_states), *arguments, last_tokens=last_tokens, **named)
        hidden_states = tokens_of(hidden_states, last_tokens) + attended
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class FastLanguageAttention(nn.Module):
    """Attention with rotary positions; heads are normalised where the family does (Qwen3). Where output and sums of a
    pass are known (`outputs`), nothing is attended to again.

    last_tokens: (rows,) int64, the only tokens that ask, each for what its row has up to it: (rows, 1, hidden).
    """

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        past_key_values: Any | None = None,
        segment_lengths: Sequence[int] | None = None,
        last_tokens: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        shape = (*hidden_states.shape[:-1], -1, self.head_dim)
        asking = hidden_states if last_tokens is None else tokens_of(hidden_states, last_tokens)
        query = self.q_proj(asking).view(*asking.shape[:-1], -1, self.head_dim)
        key = self.k_proj(hidden_states).view(shape)
        value = self.v_proj(hidden_states).view(shape).transpose(1, 2)
        if hasattr(self, "q_norm"):
            query, key = self.q_norm(query), self.k_norm(key)
        cos, sin = (part.unsqueeze(2) for part in position_embeddings)
        key = rotate(key, cos, sin).transpose(1, 2)
        if last_tokens is not None:
            cos, sin = (tokens_of(part.expand(len(last_tokens), -1, -1, -1), last_tokens) for part in (cos, sin))
            attention_mask = mask_behind(last_tokens, key.shape[2], value.dtype)
        query = rotate(query, cos, sin).transpose(1, 2)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        outputs = pass_outputs()
        output = None if outputs is None else outputs.known(self)
        log_sums = None if outputs is None else outputs.known(self, "log_sums")
        if output is not None and log_sums is not None:
            attended = attention_of_known(query, key, value, attention_mask, self.scaling, output, log_sums)
            return self.o_proj(attended), None
        output, log_sums = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            scaling=self.scaling,
            segment_lengths=segment_lengths,
            with_log_sums=outputs is not None,
        )
        output = output.flatten(2)
        if outputs is not None and log_sums is not None:
            outputs.note(self, output)
            outputs.note(self, log_sums, "log_sums")
        return self.o_proj(output), None


class FastVisionAttention(nn.Module):
    """Attention within the pieces that `cu_seqlens` tells, windows of one size together."""

    def forward(
        self: Any, hidden_states: Tensor, cu_seqlens: Tensor, position_embeddings: tuple[Tensor, Tensor], **_: Any
    ) -> Tensor:
        length = hidden_states.shape[0]
        packed = self.qkv(hidden_states).view(length, 3, self.num_heads, -1)
        packed = rotate_packed(packed, *position_embeddings)
        output = attend_within(packed, cu_seqlens.diff().tolist(), self.scaling)
        return self.proj(output)


def _behaviour_for(module: nn.Module) -> type[nn.Module] | None:
    parts = dict(module.named_children())
    if type(module) is nn.Linear:
        return FastLinear
    if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
        return FastRmsNorm
    if _is_gated(module):
        return FastGatedMlp
    if parts.keys() == _PARTS_OF_LAYER and _behaviour_for(parts["self_attn"]) is FastLanguageAttention:
        return FastDecoderLayer
    if {"q_proj", "k_proj", "v_proj", "o_proj"} <= parts.keys() and hasattr(module, "layer_idx"):
        return FastLanguageAttention
    if {"qkv", "proj"} <= parts.keys() and hasattr(module, "num_heads"):
        return FastVisionAttention
    return None


def _is_gated(module: Any) -> bool:
    parts = dict(module.named_children())
    return {"gate_proj", "up_proj", "down_proj"} <= parts.keys() and type(module.act_fn).__name__.startswith("SiLU")


def _subclass(behaviour: type[nn.Module], kind: type[nn.Module]) -> type[nn.Module]:
    """One class for each pair, so that modules of one kind stay of one kind."""
    if (behaviour, kind) not in _SUBCLASSES:
        _SUBCLASSES[behaviour, kind] = type(f"Fast{kind.__name__}", (behaviour, kind), {})
    return _SUBCLASSES[behaviour, kind]


_PARTS_OF_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_SUBCLASSES: dict[tuple[type[nn.Module], type[nn.Module]], type[nn.Module]] = {}
