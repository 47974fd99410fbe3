"""Reward models of both kinds behind one interface: samples and responses in, a number for each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from mmrl.config.reward import ModelRewardConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ModelError
from mmrl.models.classifier import load_classifier
from mmrl.models.reward_model import RewardModel, is_reward_model, load_reward_model
from mmrl.types import Sample

_NO_LIMIT = 10**9


class Scorer(Protocol):
    def score(self, samples: Sequence[Sample], responses: Sequence[str]) -> list[float | str]:
        """A number for each response, or why there is none."""


def load_scorer(config: ModelRewardConfig, store: ImageStore) -> Scorer:
    """Raises NotFoundError or ModelError for a model that is missing, incomplete or gives no scores."""
    if is_reward_model(config.path):
        return HeadScorer(config, store)
    return ClassifierScorer(config)


class HeadScorer:
    """A `RewardModel`, text or vision-language, as mmrl saves it."""

    def __init__(self, config: ModelRewardConfig, store: ImageStore) -> None:
        if config.label is not None:
            raise ModelError(f"model {config.path} gives one number; leave `label` out")
        model = ModelConfig(path=config.path, dtype=config.dtype, device=config.device)
        image = ImageConfig(min_pixels=config.min_pixels, max_pixels=config.max_pixels)
        self._model: RewardModel = load_reward_model(model, image, store=store)
        self._limit = config.max_tokens or _max_positions(self._model.body.hf.config)

    @torch.no_grad()
    def score(self, samples: Sequence[Sample], responses: Sequence[str]) -> list[float | str]:
        prompts = self._model.body.prompts
        prepared = [prompts.prepare(sample) for sample in samples]
        rows = [prompts.encode_response(text) for text in responses]
        lengths = [len(prompt) + len(ids) for prompt, ids in zip(prepared, rows, strict=True)]
        good = [index for index, length in enumerate(lengths) if length <= self._limit]
        results: list[float | str] = [_too_long(length, self._limit) for length in lengths]
        if good:
            scores = self._model.score([prepared[index] for index in good], [[rows[index]] for index in good])
            for index, score in zip(good, scores.tolist(), strict=True):
                results[index] = score
        return results


class ClassifierScorer:
    """What `AutoModelForSequenceClassification` loads; see `models.classifier`."""

    def __init__(self, config: ModelRewardConfig) -> None:
        self._model = load_classifier(ModelConfig(path=config.path, dtype=config.dtype, device=config.device))
        self._limit = config.max_tokens or self._model.prompts.max_tokens
        self._column = _column_of(config, self._model.hf.config)

    @torch.no_grad()
    def score(self, samples: Sequence[Sample], responses: Sequence[str]) -> list[float | str]:
        encode = self._model.prompts.encode
        encoded = [encode(sample, text) for sample, text in zip(samples, responses, strict=True)]
        good = [index for index, one in enumerate(encoded) if len(one) <= self._limit]
        results: list[float | str] = [_too_long(len(one), self._limit) for one in encoded]
        if good:
            logits = self._model.logits([encoded[index] for index in good])
            values = logits[:, 0] if self._column is None else logits.softmax(-1)[:, self._column]
            for index, score in zip(good, values.tolist(), strict=True):
                results[index] = score
        return results


def _column_of(config: ModelRewardConfig, settings: Any) -> int | None:
    """The class that is asked for; None for a model that gives one number."""
    if settings.num_labels == 1:
        if config.label is not None:
            raise ModelError(f"model {config.path} gives one number; leave `label` out")
        return None
    names = {index: str(name) for index, name in settings.id2label.items()}
    for index, name in names.items():
        if config.label in (index, name):
            return int(index)
    raise ModelError(
        f"model {config.path} has {settings.num_labels} classes; set `label` to the one that is good "
        f"({', '.join(f'{index}: {name}' for index, name in names.items())}; got {config.label!r})"
    )


def _max_positions(settings: Any) -> int:
    text = settings.get_text_config()
    limit: int = getattr(text, "max_position_embeddings", None) or _NO_LIMIT
    return limit


def _too_long(length: int, limit: int) -> str:
    return f"prompt and response have {length} tokens, more than the {limit} that the reward model takes (max_tokens)"
