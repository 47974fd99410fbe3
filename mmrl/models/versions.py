"""Hashes of what decides how a model reads a prompt, to tell whether two models read it alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from mmrl.models.fingerprint import model_fingerprint
from mmrl.models.processing import PromptProcessor, chat_template_of
from mmrl.types import Sample


def template_version(prompts: PromptProcessor) -> str:
    return _short(chat_template_of(prompts.processor))


def tokenizer_version(prompts: PromptProcessor) -> str:
    """Of the vocabulary, the added tokens and how text is cut."""
    backend = getattr(prompts.tokenizer, "backend_tokenizer", None)
    text = backend.to_str() if backend is not None else json.dumps(sorted(prompts.tokenizer.get_vocab().items()))
    return _short(text)


def processor_version(prompts: PromptProcessor) -> str:
    """Of the image processor's settings and the limits of image size in use."""
    if prompts.images is None:
        return _short("no images")
    limits = prompts.images.limits
    settings = prompts.processor.image_processor.to_dict()
    values = [settings, limits.factor, limits.min_pixels, limits.max_pixels]
    return _short(json.dumps(values, sort_keys=True, default=str))


def prompts_version(prompts: PromptProcessor, samples: Iterable[Sample]) -> str:
    """Of the ids of every prompt, images expanded, and the sizes to which its images are resized."""
    digest = hashlib.sha256()
    for sample in samples:
        sketch = prompts.sketch(sample)
        digest.update(json.dumps([sketch.token_ids, [image.processed_size for image in sketch.images]]).encode())
    return digest.hexdigest()[:16]


def weights_version(path: str | Path) -> str:
    """Of all files of a model folder that loading reads; for a name on the hub, of its revision."""
    return _short(json.dumps(model_fingerprint(str(path)), sort_keys=True))


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
