"""Samples as a model will see them: sizes after resizing and exact token counts, by the code that a run uses."""

from __future__ import annotations

from dataclasses import dataclass

from mmrl.config import RunConfig
from mmrl.config.run import ImageConfig
from mmrl.data.images import ImageStore
from mmrl.models.loading import load_prompts
from mmrl.models.processing import PromptProcessor
from mmrl.trainer.targets import prompt_only
from mmrl.types import Sample


@dataclass(frozen=True)
class ImagePreview:
    """processed_size: (width, height) in pixels as the vision tower gets it. tokens: that it takes in the prompt."""

    sha256: str
    processed_size: tuple[int, int]
    tokens: int


@dataclass(frozen=True)
class SamplePreview:
    """prompt_tokens: with images expanded. fits: whether the run takes the prompt as it is, or with smaller images."""

    images: tuple[ImagePreview, ...]
    prompt_tokens: int
    fits: bool


class Previewer:
    """max_prompt_tokens: the run's limit, None without one. resizes: whether images shrink until a prompt fits."""

    def __init__(self, processor: PromptProcessor, *, max_prompt_tokens: int | None, resizes: bool) -> None:
        self._processor = processor
        self._limit = max_prompt_tokens
        self._resizes = resizes

    @classmethod
    def of_run(cls, config: RunConfig, store: ImageStore) -> Previewer:
        data = config.data
        processor = load_prompts(config.model.path, data.image, store=store)
        return cls(processor, max_prompt_tokens=data.max_prompt_tokens, resizes=data.on_overlong == "resize")

    @classmethod
    def of_model(cls, path: str, store: ImageStore) -> Previewer:
        """With the default limits of image size and none on the prompt's length."""
        return cls(load_prompts(path, ImageConfig(), store=store), max_prompt_tokens=None, resizes=False)

    def __call__(self, sample: Sample) -> SamplePreview:
        prompt = prompt_only(sample)
        if self._resizes and self._limit is not None:
            prompt = self._processor.fit(prompt, self._limit) or prompt
        prepared = self._processor.prepare(prompt)
        images = tuple(ImagePreview(image.sha256, image.processed_size, image.num_tokens) for image in prepared.images)
        return SamplePreview(images, len(prepared), self._limit is None or len(prepared) <= self._limit)
