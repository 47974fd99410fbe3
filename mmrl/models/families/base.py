"""What differs between model families, behind one interface. An adapter keeps no state: every method takes the model.

A family says where a model's parts are, how images become features, which rotary positions a prompt has, and how the
language model is called with embeddings, ready positions, a ready mask and a cache.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import Cache

from mmrl.batch import PreparedImage, PreparedPrompt
from mmrl.config.run import ModelPart
from mmrl.models.fast import make_fast
from mmrl.models.fast.last_tokens import tokens_of
from mmrl.models.fast.modules import FastDecoderLayer


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """embeds: (tokens, hidden) that replace the placeholders' embeddings, image after image.

    deepstack: one (tokens, hidden) for each of the first layers, added to its output at the same places.
    """

    embeds: Tensor
    deepstack: tuple[Tensor, ...] = ()

    def take(self, tokens: Tensor) -> ImageFeatures:
        return ImageFeatures(self.embeds[tokens], tuple(level[tokens] for level in self.deepstack))


@dataclass(frozen=True, eq=False)
class ImageSlots:
    """Where image features go in (rows, length) tokens.

    index: (slots,) int64, ascending places in the flattened tokens. features: one for each slot.
    """

    index: Tensor
    features: ImageFeatures

    def mask(self, rows: int, length: int) -> Tensor:
        mask = torch.zeros(rows * length, dtype=torch.bool, device=self.index.device)
        mask[self.index] = True
        return mask.view(rows, length)


class Family(ABC):
    """model_types: `config.model_type`s that the adapter is for. sees_images: whether it has a vision tower."""

    model_types: ClassVar[tuple[str, ...]]
    sees_images: ClassVar[bool]
    auto_class: ClassVar[Any]
    num_position_axes: ClassVar[int]

    @abstractmethod
    def language_model(self, hf: Any) -> nn.Module:
        """The module that takes embeddings and returns hidden states after its last norm."""

    @abstractmethod
    def parts(self, hf: Any) -> dict[ModelPart, tuple[nn.Module, ...]]:
        """Modules of each part that can be frozen; together they hold every parameter."""

    @abstractmethod
    def positions(self, hf: Any, prompt: PreparedPrompt) -> Tensor:
        """(num_position_axes, length) int64, rotary positions; the token after the prompt has their largest plus 1."""

    @abstractmethod
    def attention_settings(self, name: str) -> Any:
        """What `attn_implementation` must be to give the language model, and only it, the attention of that name."""

    def adapt(self, hf: Any) -> None:
        """Replaces slow ways of computing by fast ones, once after loading; weights and their names stay."""
        make_fast(hf)

    def projectors(self, hf: Any) -> tuple[nn.Module, ...]:
        """The modules that map the tower's features into the language model's space."""
        return ()

    def encode_images(self, hf: Any, images: Sequence[PreparedImage]) -> ImageFeatures:
        """Features of all images from one call of the vision tower."""
        raise NotImplementedError(f"{type(self).__name__} has no vision tower")

    def tower_features(self, hf: Any, images: Sequence[PreparedImage]) -> tuple[Tensor, ...]:
        """The same before the projectors: (tokens, features of the patches that each merges) for each projector."""
        raise NotImplementedError(f"{type(self).__name__} has no vision tower")

    def project(self, hf: Any, levels: Sequence[Tensor]) -> ImageFeatures:
        """What `tower_features` gave, through the projectors."""
        raise NotImplementedError(f"{type(self).__name__} has no vision tower")

    def blank_image(self, hf: Any) -> PreparedImage:
        """The smallest image that the vision tower takes, for a pass that has none of its own."""
        raise NotImplementedError(f"{type(self).__name__} has no vision tower")

    def vision_attention_pairs(self, hf: Any, grid_thw: tuple[int, int, int]) -> int:
        """Pairs of patches that attend to each other in an image, summed over the tower's blocks."""
        raise NotImplementedError(f"{type(self).__name__} has no vision tower")

    def run(
        self,
        hf: Any,
        embeds: Tensor,
        positions: Tensor,
        *,
        mask: Tensor | None,
        cache: Cache | None,
        slots: ImageSlots | None = None,
        segment_lengths: Sequence[int] | None = None,
        last_tokens: Tensor | None = None,
    ) -> Tensor:
        """Hidden states (rows, length, hidden) of `embeds`, whose image features are in place already.

        last_tokens: (rows,) int64, the only token of each row whose hidden state is wanted, beside what goes into the
        cache; the result is (rows, 1, hidden).

        positions: (axes, rows, length). mask, segment_lengths: see `mmrl.models.attention`. slots: for families that
        add image features to later layers too.
        """
        more: dict[str, Any] = self._slot_arguments(slots, embeds)
        if segment_lengths is not None:
            more["segment_lengths"] = segment_lengths
        layers, num_levels = self.language_model(hf).layers, 0 if slots is None else len(slots.features.deepstack)
        # Attention alone would take it in every layer. Features that are added behind the last layer need all of it.
        if last_tokens is not None and isinstance(layers[-1], FastDecoderLayer) and num_levels < len(layers):
            more["last_tokens"] = last_tokens
        hidden: Tensor = self.language_model(hf)(
            inputs_embeds=embeds,
            position_ids=self._position_ids(positions),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=cache is not None,
            **more,
        ).last_hidden_state
        return hidden if last_tokens is None or hidden.shape[1] == 1 else tokens_of(hidden, last_tokens)

    def embed(self, hf: Any, token_ids: Tensor) -> Tensor:
        return hf.get_input_embeddings()(token_ids)

    def head(self, hf: Any) -> nn.Module:
        """The linear map from hidden states to logits."""
        return hf.get_output_embeddings()

    def wrap_points(self, hf: Any) -> list[nn.Module]:
        """The modules to shard one by one, in the order in which they run."""
        return list(self.language_model(hf).layers)

    def _position_ids(self, positions: Tensor) -> Tensor:
        return positions

    def _slot_arguments(self, slots: ImageSlots | None, embeds: Tensor) -> dict[str, Any]:
        return {}
