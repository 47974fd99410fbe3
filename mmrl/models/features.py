"""A frozen tower's features, computed once an image and kept by content.

With the tower frozen its output is a constant of the image: sampling, old pass, reference and every epoch of the
update can share it. It is taken before the projector while that trains, and behind it when that is frozen too.

Kept features are dropped as soon as any weight that they came from was written to, whoever wrote it: torch counts the
writes of each tensor. On more than one rank every rank must see the same images missing, since the tower's forward
pass is then a collective one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmrl.batch import PreparedImage
from mmrl.models.families import Family, ImageFeatures
from mmrl.models.weight_writes import write_counts

DEFAULT_CACHE_BYTES = 1 << 30

_Key = tuple[str, tuple[int, int, int]]
_Levels = tuple[Tensor, ...]


class ImageEncoder:
    """Features of images for one model; the most recently used are kept, up to `cache_bytes`, on the model's device."""

    def __init__(self, family: Family, *, cache_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self._family = family
        self._cache_bytes = cache_bytes
        self._free_bytes = cache_bytes
        self._cache: OrderedDict[_Key, _Levels] = OrderedDict()
        self._writes: tuple[Any, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> ImageEncoder:
        """For a copy of the model, whose weights are others: the same settings, nothing kept."""
        return ImageEncoder(self._family, cache_bytes=self._cache_bytes)

    def encode(self, hf: Any, images: Sequence[PreparedImage]) -> ImageFeatures:
        """Features of `images` in their order, from at most one call of the tower; gradients go to what is trained."""
        parts = self._family.parts(hf)
        if _is_trained(parts["vision"]):
            return self._family.encode_images(hf, images)
        projector_is_trained = _is_trained(parts["projector"])
        constant = parts["vision"] if projector_is_trained else (*parts["vision"], *parts["projector"])
        self._drop_if_written((projector_is_trained, *write_counts(constant)))
        found = self._look_up(hf, images, is_projected=not projector_is_trained)
        levels = tuple(torch.cat(level) for level in zip(*(found[_key(image)] for image in images), strict=True))
        return self._family.project(hf, levels) if projector_is_trained else ImageFeatures(levels[0], levels[1:])

    def _look_up(self, hf: Any, images: Sequence[PreparedImage], *, is_projected: bool) -> dict[_Key, _Levels]:
        found: dict[_Key, _Levels] = {}
        missing: dict[_Key, PreparedImage] = {}
        for image in images:
            key = _key(image)
            if key in self._cache:
                self._cache.move_to_end(key)
                found[key] = self._cache[key]
            else:
                missing[key] = image
        if missing:
            computed = self._compute(hf, list(missing.values()), is_projected=is_projected)
            for key, levels in zip(missing, computed, strict=True):
                found[key] = levels
                self._keep(key, levels)
        return found

    @torch.no_grad()
    def _compute(self, hf: Any, images: Sequence[PreparedImage], *, is_projected: bool) -> list[_Levels]:
        levels: _Levels = self._family.tower_features(hf, images)
        if is_projected:
            features = self._family.project(hf, levels)
            levels = (features.embeds, *features.deepstack)
        sizes = [image.num_tokens for image in images]
        by_image = zip(*(level.split(sizes) for level in levels), strict=True)
        # A view would keep the features of the whole batch alive.
        return [tuple(level.clone() for level in of_image) for of_image in by_image]

    def _keep(self, key: _Key, levels: _Levels) -> None:
        self._cache[key] = levels
        self._free_bytes -= _num_bytes(levels)
        while self._free_bytes < 0:
            _, oldest = self._cache.popitem(last=False)
            self._free_bytes += _num_bytes(oldest)

    def _drop_if_written(self, writes: tuple[Any, ...]) -> None:
        if writes != self._writes:
            self._cache.clear()
            self._free_bytes = self._cache_bytes
            self._writes = writes


def _key(image: PreparedImage) -> _Key:
    return image.sha256, image.grid_thw


def _num_bytes(levels: _Levels) -> int:
    return sum(level.nbytes for level in levels)


def _is_trained(modules: Sequence[nn.Module]) -> bool:
    return any(weight.requires_grad for module in modules for weight in module.parameters())
