"""What Qwen2-VL, Qwen2.5-VL and Qwen3-VL have in common: a tower with a merger, and three-axis rotary positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import AutoModelForImageTextToText

from mmrl.batch import PreparedImage, PreparedPrompt, pixels_of
from mmrl.config.run import ModelPart
from mmrl.models.families.base import Family, ImageFeatures
from mmrl.models.fast.functions import can_use_onednn
from mmrl.models.fast.functions import linear as fast_linear
from mmrl.types import ImageRef


class PatchProjection(nn.Conv3d):
    """A convolution whose kernel is as large as its input, computed as the matrix product that it is.

    On the CPU torch's own takes several times as long, and its backward pass in bfloat16 fifty times.
    """

    def forward(self, patches: Tensor) -> Tensor:
        """(patches, channels, frames, height, width) to (patches, features)."""
        flat, weight = patches.flatten(1), self.weight.flatten(1)
        return (fast_linear if can_use_onednn(flat, weight) else linear)(flat, weight, self.bias)


class QwenVlFamily(Family):
    sees_images = True
    auto_class = AutoModelForImageTextToText
    num_position_axes = 3

    def language_model(self, hf: Any) -> nn.Module:
        return hf.model.language_model

    def projectors(self, hf: Any) -> tuple[nn.Module, ...]:
        """The modules that map the tower's features into the language model's space."""
        return (hf.model.visual.merger,)

    def adapt(self, hf: Any) -> None:
        super().adapt(hf)
        hf.model.visual.patch_embed.proj.__class__ = PatchProjection

    def parts(self, hf: Any) -> dict[ModelPart, tuple[nn.Module, ...]]:
        projectors = self.projectors(hf)
        tower = tuple(module for module in hf.model.visual.children() if module not in projectors)
        return {"vision": tower, "projector": projectors, "language": (hf.model.language_model, hf.lm_head)}

    def wrap_points(self, hf: Any) -> list[nn.Module]:
        return [*hf.model.visual.blocks, *super().wrap_points(hf)]

    def attention_settings(self, name: str) -> dict[str, str]:
        return {"": "sdpa", "text_config": name, "vision_config": "sdpa"}

    def positions(self, hf: Any, prompt: PreparedPrompt) -> Tensor:
        return mrope_positions(prompt, hf.config.image_token_id, hf.config.vision_config.spatial_merge_size)

    def encode_images(self, hf: Any, images: Sequence[PreparedImage]) -> ImageFeatures:
        return ImageFeatures(*self._run_tower(hf, images))

    def tower_features(self, hf: Any, images: Sequence[PreparedImage]) -> tuple[Tensor, ...]:
        with _passing_through(self._each_projector(hf)):
            embeds, deepstack = self._run_tower(hf, images)
        return embeds, *deepstack

    def project(self, hf: Any, levels: Sequence[Tensor]) -> ImageFeatures:
        merge = hf.model.visual.spatial_merge_size
        patches = [level.unflatten(1, (merge**2, -1)).flatten(0, 1) for level in levels]
        embeds, *deepstack = (
            projector(level) for projector, level in zip(self._each_projector(hf), patches, strict=True)
        )
        return ImageFeatures(embeds, tuple(deepstack))

    def deepstack_of(self, output: Any) -> tuple[Tensor, ...]:
        """Features for later layers in the tower's output."""
        return ()

    def blank_image(self, hf: Any) -> PreparedImage:
        merge = hf.model.visual.spatial_merge_size
        patch = hf.model.visual.patch_embed.proj.weight.shape[1:]
        side = merge * patch[-1]
        return PreparedImage(
            reference=ImageRef("blank", side, side),
            pixel_values=torch.zeros(merge**2, patch.numel()),
            grid_thw=(1, merge, merge),
            num_tokens=1,
            processed_size=(side, side),
        )

    def _run_tower(self, hf: Any, images: Sequence[PreparedImage]) -> tuple[Tensor, tuple[Tensor, ...]]:
        tower = hf.model.visual
        device = tower.patch_embed.proj.weight.device
        patches = torch.cat([pixels_of(image) for image in images]).to(device)
        grids = torch.tensor([image.grid_thw for image in images], device=device)
        output = tower(patches, grid_thw=grids, return_dict=True)
        return output.pooler_output, self.deepstack_of(output)

    def _each_projector(self, hf: Any) -> list[nn.Module]:
        """One for each level of features, a list of modules taken apart."""
        projectors: list[nn.Module] = []
        for module in self.projectors(hf):
            projectors.extend(module if isinstance(module, nn.ModuleList) else [module])
        return projectors

    def vision_attention_pairs(self, hf: Any, grid_thw: tuple[int, int, int]) -> int:
        frames, rows, columns = grid_thw
        return len(hf.model.visual.blocks) * frames * (rows * columns) ** 2


@contextmanager
def _passing_through(projectors: Sequence[nn.Module]) -> Iterator[None]:
    """Within the block projectors only put the patches together that they merge.

    The tower itself then does what it does around them, such as putting windows back in order.
    """
    for projector in projectors:
        projector.forward = partial(_put_together, projector.hidden_size)
    try:
        yield
    finally:
        for projector in projectors:
            del projector.forward


def _put_together(size: int, patches: Tensor) -> Tensor:
    """(patches, features) to (tokens, features of all patches that a token merges)."""
    return patches.reshape(-1, size)


def mrope_positions(prompt: PreparedPrompt, image_token_id: int, merge: int) -> Tensor:
    """(3, length) int64: time, row and column of every token (M-RoPE, arXiv 2409.12191, section 2.1).

    Text advances all three axes by one a token. The tokens of an image keep the time of its first, and count rows and
    columns of merged patches from there; what follows it starts behind the longer of its sides.
    """
    pieces: list[Tensor] = []
    start = cursor = 0
    for image in prompt.images:
        begin = prompt.token_ids.index(image_token_id, cursor)
        pieces.append(_text_positions(begin - cursor, start))
        start += begin - cursor
        frames, rows, columns = image.grid_thw[0], image.grid_thw[1] // merge, image.grid_thw[2] // merge
        axes = [torch.arange(size) for size in (frames, rows, columns)]
        pieces.append(torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1) + start)
        start += max(rows, columns)
        cursor = begin + image.num_tokens
    pieces.append(_text_positions(len(prompt) - cursor, start))
    return torch.cat(pieces, dim=1)


def _text_positions(length: int, start: int) -> Tensor:
    return torch.arange(start, start + length).expand(3, -1)
