"""Messages to token ids: the chat template rendered once, the user's words never read as control tokens.

Ordinarily the rendered text is encoded as it is, as the model's own processor does. Where someone typed the name of a
special token, such as `<|image_pad|>`, that must stay text: the name is kept out of the template, and the stretches
between the template's special tokens are encoded one by one. A tokenizer cuts text at its special tokens before
anything else, so for the rest of the prompt the ids are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from mmrl.errors import ModelError
from mmrl.types import ImagePart, Message, TextPart

_PRIVATE_USE = range(0xE000, 0xF900)


class ChatEncoder:
    """Renders and encodes messages with a tokenizer and its (or the processor's) chat template."""

    def __init__(self, tokenizer: Any, chat_template: str, *, sees_images: bool) -> None:
        self._tokenizer = tokenizer
        self._template = chat_template
        self._sees_images = sees_images
        special = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        names = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
        self._special = re.compile(names or r"(?!)")

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the prompt with the header of the answer, each image still one placeholder."""
        escape = _unused_character(messages)
        literals: list[str] = []
        rendered = self._render([self._to_template(message, escape, literals) for message in messages])
        return self._encode_rendered(rendered, escape, literals)

    def encode_after(self, history: Sequence[Message], following: Sequence[Message]) -> list[int]:
        """Ids that the template writes behind the words of an assistant turn after `history` when `following` comes
        next and then another assistant turn: the end of the turn first, each image one placeholder, the header of the
        next answer last. The words themselves have no part in it."""
        mark = _unused_character([*history, *following])
        answered = [*history, Message("assistant", (TextPart(mark),)), *following]
        escape = _unused_character(answered)
        literals: list[str] = []
        rendered = self._render([self._to_template(message, escape, literals) for message in answered])
        return self._encode_rendered(rendered.rpartition(mark)[2], escape, literals)

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text; a special token's name in it is letters like any other."""
        if not text:
            return []
        return self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    def end_of_turn(self, end_token_ids: frozenset[int]) -> int | None:
        """The end token that the template writes after the assistant's words, None if it writes none of them."""
        mark = chr(_PRIVATE_USE[0])
        turns = [{"role": "user", "content": mark}, {"role": "assistant", "content": mark}]
        rendered = self._tokenizer.apply_chat_template(turns, chat_template=self._template, tokenize=False)
        for token in self._special.findall(rendered.rpartition(mark)[2]):
            token_id = self._tokenizer.convert_tokens_to_ids(token)
            if token_id in end_token_ids:
                return token_id
        return None

    def _encode_rendered(self, rendered: str, escape: str, literals: Sequence[str]) -> list[int]:
        if not literals:
            return self._tokenizer(rendered, add_special_tokens=False)["input_ids"]
        ids: list[int] = []
        for stretch, is_special in _cut(rendered, self._special):
            if is_special:
                ids.append(self._tokenizer.convert_tokens_to_ids(stretch))
            else:
                ids.extend(self.encode_text(_restore(stretch, escape, literals)))
        return ids

    def _to_template(self, message: Message, escape: str, literals: list[str]) -> dict[str, Any]:
        if not any(isinstance(part, ImagePart) for part in message.content):
            return {"role": message.role, "content": self._escape(message.text, escape, literals)}
        if not self._sees_images:
            raise ModelError("the model reads text only and the prompt has an image; use a vision-language model")
        parts = [
            {"type": "text", "text": self._escape(part.text, escape, literals)}
            if isinstance(part, TextPart)
            else {"type": "image"}
            for part in message.content
        ]
        return {"role": message.role, "content": parts}

    def _escape(self, text: str, escape: str, literals: list[str]) -> str:
        """Each special token's name in `text` replaced by its number in `literals` between two escape characters."""

        def note(match: re.Match[str]) -> str:
            literals.append(match.group())
            return f"{escape}{len(literals) - 1}{escape}"

        return self._special.sub(note, text)

    def _render(self, messages: list[dict[str, Any]]) -> str:
        return self._tokenizer.apply_chat_template(
            messages, chat_template=self._template, tokenize=False, add_generation_prompt=True
        )


def _unused_character(messages: Sequence[Message]) -> str:
    used = {character for message in messages for character in message.text}
    return next(chr(code) for code in _PRIVATE_USE if chr(code) not in used)


def _restore(text: str, escape: str, literals: Sequence[str]) -> str:
    return re.sub(f"{escape}([0-9]+){escape}", lambda match: literals[int(match.group(1))], text)


def _cut(text: str, special: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    """The stretches of `text` in order, each with whether it is a special token."""
    start = 0
    for match in special.finditer(text):
        yield text[start : match.start()], False
        yield match.group(), True
        start = match.end()
    yield text[start:], False
