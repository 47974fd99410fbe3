"""Prompts as vLLM takes them: ids with one placeholder an image, and the images resized by mmrl.

vLLM expands the placeholders itself. What it makes of them must be what the actor will read, id by id.
"""

from __future__ import annotations

from typing import Any

from mmrl.batch import PreparedImage, PreparedPrompt
from mmrl.errors import ModelError
from mmrl.models.processing import PromptProcessor
from mmrl.types import Sample

AS_IT_IS = {"do_resize": False}
"""For the model's image processor: images come in their final size."""


def render(llm: Any, prompts: PromptProcessor, sample: Sample, prompt: PreparedPrompt) -> Any:
    """vLLM's input for the prompt of `sample`, of which `prompt` is at least a sketch.

    Raises ModelError naming the sample where vLLM would read other ids than the actor, DataError for an image that
    cannot be taken.
    """
    given: dict[str, Any] = {"prompt_token_ids": list(prompts.short_ids(sample))}
    if prompt.images:
        assert prompts.images is not None
        given |= {
            "multi_modal_data": {"image": [prompts.images.resized(image) for image in prompt.images]},
            "multi_modal_uuids": {"image": [_identity(image) for image in prompt.images]},
            "mm_processor_kwargs": AS_IT_IS,
        }
    rendered = llm.llm_engine.renderer.render_cmpl([given])[0]
    check_ids(sample, prompt.token_ids, rendered["prompt_token_ids"])
    return rendered


def check_ids(sample: Sample, ours: tuple[int, ...], theirs: list[int]) -> None:
    """Raises ModelError that names the sample and the first place where the two differ."""
    if ours == tuple(theirs):
        return
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((index for index, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    raise ModelError(
        f"sample {sample.id}: vllm reads another prompt than the actor: {len(theirs)} tokens for {len(ours)}, first "
        f"different at {place}. Its processor expands images otherwise; use rollout.engine: hf for this model, or a "
        "version of vllm that knows it"
    )


def _identity(image: PreparedImage) -> str:
    width, height = image.processed_size
    return f"{image.sha256}-{width}x{height}"
