"""Text classifiers of transformers as reward models: `AutoModelForSequenceClassification`.

An encoder (DeBERTa, BERT) reads prompt and answer as a pair. A causal model reads its chat template and is asked at the
last real token: transformers' own search for that token stops at a real token that is also the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from mmrl.batch import GroupBatch, PreparedImage, PreparedPrompt
from mmrl.config.run import ModelConfig
from mmrl.errors import DataError, ModelError
from mmrl.models.chat import ChatEncoder
from mmrl.models.loading import ask_transformers, check_folder, device_of
from mmrl.models.processing import EncodedTurns
from mmrl.models.quiet import without_progress_bars
from mmrl.types import Message, Sample


def is_classifier(path: str) -> bool:
    """Whether the model at `path` is a sequence classifier by its configuration, of whatever architecture."""
    check_folder(path)
    return is_classifier_config(ask_transformers(path, AutoConfig.from_pretrained))


def is_classifier_config(config: Any) -> bool:
    return any(name.endswith("ForSequenceClassification") for name in getattr(config, "architectures", None) or [])


@dataclass(frozen=True)
class EncodedText:
    """Ids of the prompt and of the answer behind it, with what belongs to a pair's separation."""

    prompt: list[int]
    answer: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


class Classifier(nn.Module):
    """hf: the model, its weights in float32. second_type: the type of the answer's tokens, None where a tokenizer tells
    none apart. lockstep: its weights always lie in one piece."""

    lockstep: None = None

    def __init__(self, hf: Any, prompts: ClassifierPrompts, *, dtype: torch.dtype) -> None:
        super().__init__()
        self.hf = hf
        self.prompts = prompts
        self.dtype = dtype
        self._is_causal = hasattr(hf, "score")
        self.eval()

    @property
    def device(self) -> torch.device:
        device: torch.device = self.hf.device
        return device

    def train(self, mode: bool = True) -> Classifier:
        """Stays in evaluation mode: a score has no part in chance."""
        return super().train(False)

    def checkpoint_gradients(self) -> None:
        """From now on layers keep only their inputs for the backward pass and then run again."""
        self.hf.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def forward(self, batch: GroupBatch, *, path: Any = "plain") -> Tensor:
        """(B,) float32, with gradients: the one number for each answer. path: every answer has a row of its own."""
        ids = batch.response_ids.tolist()
        rows = [
            EncodedText(list(batch.prompts[prompt].token_ids), ids[row][:length])
            for row, (prompt, length) in enumerate(
                zip(batch.prompt_of_row.tolist(), batch.response_lengths.tolist(), strict=True)
            )
        ]
        return self.logits(rows)[:, 0]

    def logits(self, encoded: Sequence[EncodedText]) -> Tensor:
        """(rows, labels) float32."""
        lengths = torch.tensor([len(one) for one in encoded])
        tokens = torch.full((len(encoded), int(lengths.max())), self.prompts.pad_token_id)
        types = torch.full_like(tokens, self.prompts.pad_type)
        for row, one in enumerate(encoded):
            tokens[row, : len(one)] = torch.tensor([*one.prompt, *one.answer])
            types[row, : len(one.prompt)] = self.prompts.first_type
            types[row, len(one.prompt) : len(one)] = self.prompts.second_type or 0
        inputs = {"input_ids": tokens, "attention_mask": (torch.arange(tokens.shape[1]) < lengths[:, None]).long()}
        if self.prompts.second_type is not None and not self._is_causal:
            inputs["token_type_ids"] = types
        inputs = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            logits = self._at_last_tokens(inputs, lengths) if self._is_causal else self.hf(**inputs).logits
        floats: Tensor = logits.float()
        return floats

    def _at_last_tokens(self, inputs: dict[str, Tensor], lengths: Tensor) -> Tensor:
        hidden = self.hf.base_model(**inputs).last_hidden_state
        last = (lengths - 1).to(self.device)
        scores: Tensor = self.hf.score(hidden[torch.arange(len(last), device=self.device), last])
        return scores


class ClassifierPrompts:
    """Samples and answers as a classifier reads them. Meets `trainer.engines.PromptMaker`.

    max_tokens: of prompt and answer together that the model can take. first_type, second_type: of the tokens of prompt
    and answer; second_type is None where the tokenizer tells none apart.
    """

    def __init__(self, path: str, config: Any, *, is_causal: bool) -> None:
        self.tokenizer = ask_transformers(path, AutoTokenizer.from_pretrained)
        self.pad_token_id: int = self.tokenizer.pad_token_id or 0
        self.pad_type: int = self.tokenizer.pad_token_type_id
        text = config.get_text_config()
        self.max_tokens: int = getattr(text, "max_position_embeddings", None) or 10**9
        self._chat = _Conversation(self.tokenizer, path) if is_causal else None
        types = None if is_causal else self.tokenizer("a", "a").get("token_type_ids")
        self.first_type = 0 if types is None else int(types[0])
        self.second_type = None if types is None else int(types[-1])

    def encode(self, sample: Sample, answer: str) -> EncodedText:
        if self._chat is not None:
            return EncodedText(self._chat.prompt(sample.messages), self._chat.answer(answer))
        together = self.tokenizer(_text(sample.messages), answer, split_special_tokens=True)
        start = len(self._first_of_pair(sample.messages))
        return EncodedText(together["input_ids"][:start], together["input_ids"][start:])

    def prepare(self, sample: Sample) -> PreparedPrompt:
        if sample.images:
            raise ModelError(
                f"sample {sample.id} has an image, and the reward model is a text classifier; use a vision-language "
                "model"
            )
        ids = self._first_of_pair(sample.messages) if self._chat is None else self._chat.prompt(sample.messages)
        return PreparedPrompt(tuple(ids), ())

    def sketch(self, sample: Sample) -> PreparedPrompt:
        """A text has nothing to leave out."""
        return self.prepare(sample)

    def encode_response(self, text: str) -> list[int]:
        raise NotImplementedError("a classifier reads an answer with its prompt")

    def encode_turns(self, prompt: Sample, turns: Sequence[Message], is_learned: Sequence[bool]) -> EncodedTurns:
        """Several turns are read as one text, a line each."""
        encoded = self.encode(prompt, _text(turns))
        if len(encoded) > self.max_tokens:
            raise DataError(
                f"sample {prompt.id} has {len(encoded)} tokens with its answer, and the reward model takes "
                f"{self.max_tokens}; set data.max_prompt_tokens and reward_model.max_response_tokens to leave it out"
            )
        ids = encoded.answer
        return EncodedTurns(ids, [1] * len(ids), ())

    def ready_images(self, images: Sequence[PreparedImage]) -> tuple[PreparedImage, ...]:
        return tuple(images)

    def num_tokens(self, sample: Sample) -> int:
        """Of the prompt."""
        return len(self.prepare(sample).token_ids)

    def fit(self, sample: Sample, max_tokens: int) -> Sample | None:
        """A text cannot be made to fit."""
        return sample if self.num_tokens(sample) <= max_tokens else None

    def _first_of_pair(self, messages: Sequence[Message]) -> list[int]:
        """What a pair holds up to its second text, separators included."""
        pair = self.tokenizer(_text(messages), "a", split_special_tokens=True)
        ids: list[int] = pair["input_ids"][: pair.sequence_ids().index(1)]
        return ids


def load_classifier(config: ModelConfig) -> Classifier:
    """The classifier of `config.path` on its device. Raises NotFoundError or ModelError for one that is missing,
    incomplete or no classifier."""
    check_folder(config.path)
    settings = ask_transformers(config.path, AutoConfig.from_pretrained)
    if not is_classifier_config(settings):
        names = getattr(settings, "architectures", None) or []
        raise ModelError(
            f"model {config.path} gives no scores: it is {', '.join(names) or 'of no known kind'}, and neither a "
            "...ForSequenceClassification nor a folder with reward_head.safetensors"
        )
    with without_progress_bars():
        hf, info = ask_transformers(
            config.path,
            AutoModelForSequenceClassification.from_pretrained,
            dtype=torch.float32,
            output_loading_info=True,
        )
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelError(
            f"model {config.path}: {len(missing)} weights are missing from its files, such as {missing[0]}"
        )
    hf.to(device_of(config))
    prompts = ClassifierPrompts(config.path, settings, is_causal=hasattr(hf, "score"))
    dtype = torch.bfloat16 if config.dtype == "bfloat16" else torch.float32
    return Classifier(hf, prompts, dtype=dtype)


def load_classifier_sizes(path: str) -> int:
    """The number of weights of the classifier at `path`, by its configuration alone."""
    with torch.device("meta"):
        hf = AutoModelForSequenceClassification.from_config(ask_transformers(path, AutoConfig.from_pretrained))
    return sum(weight.numel() for weight in hf.parameters())


def save_classifier(model: Classifier, folder: Path, weights: dict[str, Tensor] | None = None) -> None:
    """A folder that transformers, and `load_classifier`, take. weights: by module name, a copy of some time ago."""
    with without_progress_bars():
        model.hf.save_pretrained(folder, state_dict=weights)


class _Conversation:
    """Prompt and response in a chat template, ended as it ends a turn; words of either are never control tokens."""

    def __init__(self, tokenizer: Any, path: str) -> None:
        template = tokenizer.chat_template
        if not template:
            raise ModelError(f"model {path} has no chat template to put prompt and response into; save one with it")
        self._chat = ChatEncoder(tokenizer, template, sees_images=False)
        mark = "\ue000"
        turns = [{"role": "user", "content": mark}, {"role": "assistant", "content": mark}]
        end = tokenizer.apply_chat_template(turns, tokenize=False).rpartition(mark)[2]
        self._end: list[int] = tokenizer(end, add_special_tokens=False)["input_ids"]

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        return list(self._chat.encode(messages))

    def answer(self, text: str) -> list[int]:
        return [*self._chat.encode_text(text), *self._end]


def _text(messages: Sequence[Message]) -> str:
    return "\n".join(message.text for message in messages)
