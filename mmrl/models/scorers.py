"""Reward models of both kinds behind one interface: samples and responses in, a number for each out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from mmrl.config.reward import ModelRewardConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ModelError
from mmrl.models.chat import ChatEncoder
from mmrl.models.loading import ask_transformers, check_folder, device_of
from mmrl.models.quiet import without_progress_bars
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
    """What `AutoModelForSequenceClassification` loads.

    An encoder (DeBERTa, BERT) reads prompt and response as a pair. A causal model reads its chat template and is asked
    at the last real token: transformers' own search for that token stops at a real token that is also the padding.
    """

    def __init__(self, config: ModelRewardConfig) -> None:
        check_folder(config.path)
        settings = ask_transformers(config.path, AutoConfig.from_pretrained)
        names = getattr(settings, "architectures", None) or []
        if not any(name.endswith("ForSequenceClassification") for name in names):
            raise ModelError(
                f"model {config.path} gives no scores: it is {', '.join(names) or 'of no known kind'}, and neither a "
                "...ForSequenceClassification nor a folder with reward_head.safetensors"
            )
        self._tokenizer = ask_transformers(config.path, AutoTokenizer.from_pretrained)
        device = device_of(ModelConfig(path=config.path, device=config.device))
        self._model: Any = _load_classifier(config.path).to(device).eval()
        self._device = device
        self._is_bfloat16 = config.dtype == "bfloat16"
        self._limit = config.max_tokens or _max_positions(settings)
        self._column = _column_of(config, self._model.config)
        self._is_causal = hasattr(self._model, "score")
        self._chat = _Conversation(self._tokenizer, config.path) if self._is_causal else None

    @torch.no_grad()
    def score(self, samples: Sequence[Sample], responses: Sequence[str]) -> list[float | str]:
        encoded = [self._encode(sample, text) for sample, text in zip(samples, responses, strict=True)]
        lengths = [len(one["input_ids"]) for one in encoded]
        good = [index for index, length in enumerate(lengths) if length <= self._limit]
        results: list[float | str] = [_too_long(length, self._limit) for length in lengths]
        if good:
            for index, score in zip(good, self._forward([encoded[index] for index in good]), strict=True):
                results[index] = score
        return results

    def _encode(self, sample: Sample, response: str) -> dict[str, list[int]]:
        if self._chat is not None:
            return {"input_ids": self._chat.encode(sample, response)}
        prompt = "\n".join(message.text for message in sample.messages)
        return dict(self._tokenizer(prompt, response, split_special_tokens=True))

    def _forward(self, encoded: Sequence[dict[str, list[int]]]) -> list[float]:
        lengths = torch.tensor([len(one["input_ids"]) for one in encoded])
        names = [name for name in encoded[0] if name != "attention_mask"]
        fill = {"input_ids": self._tokenizer.pad_token_id or 0, "token_type_ids": self._tokenizer.pad_token_type_id}
        inputs = {name: _filled([one[name] for one in encoded], fill.get(name, 0)) for name in names}
        inputs["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        inputs = {name: tensor.to(self._device) for name, tensor in inputs.items()}
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._is_bfloat16):
            logits = self._causal_logits(inputs, lengths) if self._is_causal else self._model(**inputs).logits
        logits = logits.float()
        values = logits[:, 0] if self._column is None else logits.softmax(-1)[:, self._column]
        scores: list[float] = values.tolist()
        return scores

    def _causal_logits(self, inputs: dict[str, Tensor], lengths: Tensor) -> Tensor:
        hidden = self._model.base_model(**inputs).last_hidden_state
        last = (lengths - 1).to(self._device)
        logits: Tensor = self._model.score(hidden[torch.arange(len(last), device=self._device), last])
        return logits


class _Conversation:
    """Prompt and response in a chat template, ended as it ends a turn; words of either are never control tokens."""

    def __init__(self, tokenizer: Any, path: str) -> None:
        template = tokenizer.chat_template
        if not template:
            raise ModelError(f"model {path} has no chat template to put prompt and response into; save one with it")
        self._tokenizer = tokenizer
        self._chat = ChatEncoder(tokenizer, template, sees_images=False)
        mark = "\ue000"
        turns = [{"role": "user", "content": mark}, {"role": "assistant", "content": mark}]
        end = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(mark)[2]
        self._end: list[int] = tokenizer(end, add_special_tokens=False)["input_ids"]

    def encode(self, sample: Sample, response: str) -> list[int]:
        return [*self._chat.encode(sample.messages), *self._chat.encode_text(response), *self._end]


def _load_classifier(path: str) -> Any:
    with without_progress_bars():
        model, info = ask_transformers(
            path, AutoModelForSequenceClassification.from_pretrained, dtype=torch.float32, output_loading_info=True
        )
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelError(f"model {path}: {len(missing)} weights are missing from its files, such as {missing[0]}")
    return model


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


def _filled(rows: Sequence[Sequence[int]], fill: int) -> Tensor:
    tensor = torch.full((len(rows), max(map(len, rows))), fill)
    for index, row in enumerate(rows):
        tensor[index, : len(row)] = torch.tensor(row)
    return tensor
