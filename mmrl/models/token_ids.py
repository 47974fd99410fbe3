"""Which token ids end a response, and which may never be sampled."""

from __future__ import annotations

import re
from typing import Any

from mmrl.errors import ModelError

_END_TOKENS = ("<|im_end|>", "<|endoftext|>")
_VISION_IDS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id", "vision_token_id")
_CONTROL = re.compile(r"<\|.*\|>")


def find_end_token_ids(tokenizer: Any, generation_config: Any | None) -> frozenset[int]:
    """Ids that end a response: of the generation config, the tokenizer's own, and Qwen's two where they exist."""
    configured = getattr(generation_config, "eos_token_id", None)
    ids = set(configured if isinstance(configured, (list, tuple)) else [configured])
    ids.add(tokenizer.eos_token_id)
    vocabulary = tokenizer.get_vocab()
    ids.update(vocabulary[token] for token in _END_TOKENS if token in vocabulary)
    found = frozenset(token_id for token_id in ids if token_id is not None)
    if not found:
        raise ModelError(
            "the model has no end token: neither eos_token in its tokenizer nor eos_token_id in generation_config.json"
        )
    return found


def banned_token_ids(tokenizer: Any, config: Any, end_token_ids: frozenset[int]) -> tuple[int, ...]:
    """Ids that no response may contain, sorted.

    Banned are special tokens, added tokens that look like control tokens (`<|fim_prefix|>`), the configuration's
    vision ids, and rows of the vocabulary that no token stands for. Not banned are the end tokens, and added tokens
    that a model writes in its answer, such as `<think>` and `<tool_call>`.
    """
    added = tokenizer.added_tokens_decoder.items()
    banned = {token_id for token_id, token in added if token.special or _CONTROL.fullmatch(token.content)}
    banned.update(getattr(config, name, None) for name in _VISION_IDS)
    banned.add(tokenizer.pad_token_id)
    banned.discard(None)
    known = set(tokenizer.get_vocab().values())
    vocab_size = config.get_text_config().vocab_size
    banned.update(set(range(vocab_size)) - known)
    return tuple(sorted(token_id for token_id in banned - end_token_ids if 0 <= token_id < vocab_size))
