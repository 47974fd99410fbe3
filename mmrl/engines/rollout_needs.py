"""What the data of a run asks of a rollout engine that makes room beforehand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mmrl.config import RunConfig
from mmrl.models.processing import PromptProcessor
from mmrl.types import Sample


@dataclass(frozen=True)
class RolloutNeeds:
    """Largest sizes over all prompts that a run will sample from.

    max_prompt_tokens: images expanded. max_images: in one prompt. max_image_tokens: placeholders of one image;
    max_image_pixels: its area once resized, width x height. max_response_tokens: the config's.
    """

    max_prompt_tokens: int
    max_images: int
    max_image_tokens: int
    max_image_pixels: int
    max_response_tokens: int

    @property
    def max_tokens(self) -> int:
        """Of a prompt with its response."""
        return self.max_prompt_tokens + self.max_response_tokens


def needs_of(samples: Iterable[Sample], prompts: PromptProcessor, config: RunConfig) -> RolloutNeeds:
    """samples: training and held-out prompts, as they will be sampled from. Opens no image.

    Raises DataError for a prompt that cannot be taken.
    """
    lengths, counts, tokens, pixels = [1], [0], [0], [0]
    for sample in samples:
        lengths.append(prompts.num_tokens(sample))
        counts.append(len(sample.images))
        for image in prompts.sketch(sample).images if sample.images else ():
            tokens.append(image.num_tokens)
            pixels.append(image.processed_size[0] * image.processed_size[1])
    return RolloutNeeds(
        max_prompt_tokens=max(lengths),
        max_images=max(counts),
        max_image_tokens=max(tokens),
        max_image_pixels=max(pixels),
        max_response_tokens=config.rollout.max_response_tokens,
    )
