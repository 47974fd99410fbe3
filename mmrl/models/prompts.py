"""What a prompt is once a model can take it: ids with image placeholders expanded, and processed images."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class PreparedImage:
    """One image as the vision tower takes it.

    sha256: key of the image in the store; with the pixel limits it decides pixel_values.
    pixel_values: (patches, patch_dim) float32.
    grid_thw: frames, rows and columns of patches before merging.
    num_tokens: placeholder tokens that it takes in the prompt.
    """

    sha256: str
    pixel_values: Tensor
    grid_thw: tuple[int, int, int]
    num_tokens: int
    processed_size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class PreparedPrompt:
    """token_ids: (length,) with every image expanded to its placeholders; images in order of appearance."""

    token_ids: tuple[int, ...]
    images: tuple[PreparedImage, ...]

    def __len__(self) -> int:
        return len(self.token_ids)
