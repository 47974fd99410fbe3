"""Gradient checkpointing that works with the prefix path: layers keep their input only and run again going backward.

transformers switches the cache off where it checkpoints. Here a layer takes the cache's keys and values as inputs and
returns what they have become, so that running it again writes into a cache of its own and never twice into the first.
(Chen et al. 2016, 'Training deep nets with sublinear memory cost', arXiv 1604.06174.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mmrl.models.fast.modules import with_behaviour
from mmrl.models.prefix import KeyValueLayer


def checkpoint_layers(layers: list[nn.Module]) -> None:
    """From now on each of `layers` runs again in the backward pass instead of keeping what it computed."""
    for layer in layers:
        if not isinstance(layer, CheckpointedLayer):
            with_behaviour(layer, CheckpointedLayer)


class CheckpointedLayer(nn.Module):
    """A layer of a language model or vision tower whose first argument, and result, are hidden states."""

    def forward(self, hidden_states: Tensor, *arguments: Any, **named: Any) -> Tensor:
        forward = super().forward
        if not torch.is_grad_enabled():
            return forward(hidden_states, *arguments, **named)
        cache = named.pop("past_key_values", None)
        if cache is None:
            return _again(lambda hidden: forward(hidden, *arguments, **named), hidden_states)

        index = self.self_attn.layer_idx
        before = cache.layers[index] if index < len(cache.layers) else KeyValueLayer()

        def run(hidden: Tensor, keys: Tensor | None, values: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
            layer = KeyValueLayer(keys, values, before.choice)
            output = forward(hidden, *arguments, past_key_values=_OneLayer(layer), **named)
            return output, layer.keys, layer.values

        output, keys, values = _again(run, hidden_states, before.keys, before.values)
        after = KeyValueLayer(keys, values)
        cache.layers[index:] = [after, *cache.layers[index + 1 :]]
        return output


class _OneLayer:
    """A cache of a single layer, whichever is asked for."""

    def __init__(self, layer: KeyValueLayer) -> None:
        self._layer = layer

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self._layer.update(keys, values)


def _again(function: Any, *inputs: Any) -> Any:
    """Nothing in a layer is drawn at random, so no random state needs to be kept."""
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
