"""Prompts, alone or with what follows them, as rows of one tensor: ids, rotary positions and the places of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mmrl.batch import PreparedImage, PreparedPrompt
from mmrl.models.families import Family


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows filled up on the right.

    token_ids: (rows, length) int64. positions: (axes, rows, length) int64. lengths: (rows,) int64 real tokens.
    images: to be encoded, each once if they were shared.
    slot_index: (slots,) int64 places of image placeholders in the flattened ids, prompts' only.
    slot_feature: (slots,) int64 the feature of `images` that each takes; None if that is their own order.
    segment_lengths: of sequences that lie one behind the other in a single row; None where each has a row.
    """

    token_ids: Tensor
    positions: Tensor
    lengths: Tensor
    images: tuple[PreparedImage, ...]
    slot_index: Tensor
    slot_feature: Tensor | None
    segment_lengths: tuple[int, ...] | None = None

    def packed(self) -> Rows:
        """All rows one behind the other as a single one, without padding."""
        real = torch.arange(self.token_ids.shape[1]) < self.lengths[:, None]
        place = real.flatten().cumsum(0) - 1
        return Rows(
            token_ids=self.token_ids[real][None],
            positions=self.positions[:, real][:, None],
            lengths=self.lengths.sum()[None],
            images=self.images,
            slot_index=place[self.slot_index],
            slot_feature=self.slot_feature,
            segment_lengths=tuple(self.lengths.tolist()),
        )


def build_rows(
    family: Family,
    hf: Any,
    prompts: Sequence[PreparedPrompt],
    tails: Sequence[Sequence[int]] | None = None,
    *,
    tail_images: Sequence[tuple[PreparedImage, ...]] | None = None,
    pad_token_id: int,
    image_token_id: int | None,
    share_images: bool,
) -> Rows:
    """One row a prompt, followed by its `tails` entry where given.

    share_images: encode an image that occurs more than once a single time.
    tail_images: those in each tail. In a tail that has none, whatever id it holds, it is read as a token.
    """
    assert prompts, "no prompts to forward"
    tails = tails if tails is not None else [()] * len(prompts)
    if tail_images is not None:
        whole = [bool(images) for images in tail_images]
        prompts = [
            PreparedPrompt((*prompt.token_ids, *tail), (*prompt.images, *images)) if images else prompt
            for prompt, tail, images in zip(prompts, tails, tail_images, strict=True)
        ]
        tails = [() if joined else tail for tail, joined in zip(tails, whole, strict=True)]
    lengths = [len(prompt) + len(tail) for prompt, tail in zip(prompts, tails, strict=True)]
    token_ids = torch.full((len(prompts), max(lengths)), pad_token_id)
    positions = torch.zeros(family.num_position_axes, len(prompts), max(lengths), dtype=torch.int64)
    slots: list[Tensor] = []
    for row, (prompt, tail) in enumerate(zip(prompts, tails, strict=True)):
        ids = torch.tensor([*prompt.token_ids, *tail])
        of_prompt = family.positions(hf, prompt)
        following = int(of_prompt.max()) + 1 + torch.arange(len(tail))
        token_ids[row, : len(ids)] = ids
        positions[:, row, : len(ids)] = torch.cat([of_prompt, following.expand(len(of_prompt), -1)], dim=1)
        if prompt.images:
            slots.append(torch.nonzero(ids[: len(prompt)] == image_token_id)[:, 0] + row * max(lengths))
    images, slot_feature = _shared(prompts) if share_images else (_all_images(prompts), None)
    slot_index = torch.cat(slots) if slots else torch.zeros(0, dtype=torch.int64)
    return Rows(token_ids, positions, torch.tensor(lengths), images, slot_index, slot_feature)


def _all_images(prompts: Sequence[PreparedPrompt]) -> tuple[PreparedImage, ...]:
    return tuple(image for prompt in prompts for image in prompt.images)


def _shared(prompts: Sequence[PreparedPrompt]) -> tuple[tuple[PreparedImage, ...], Tensor | None]:
    """The different images, and for every slot the index of its feature among all of theirs."""
    first: dict[tuple[str, tuple[int, int, int]], int] = {}
    different: list[PreparedImage] = []
    features: list[Tensor] = []
    num_features = 0
    images = _all_images(prompts)
    for image in images:
        key = (image.sha256, image.grid_thw)
        if key not in first:
            first[key] = num_features
            different.append(image)
            num_features += image.num_tokens
        features.append(torch.arange(first[key], first[key] + image.num_tokens))
    if len(different) == len(images):
        return images, None
    return tuple(different), torch.cat(features)
