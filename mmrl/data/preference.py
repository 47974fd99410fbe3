"""The preferred and the rejected answer of a row, in the shapes of TRL and LLaMA-Factory.

Each is text, one message, or a list of messages; a list may repeat the prompt, which then both begin with.
In a sample they are `meta["chosen"]` and `meta["rejected"]`: the turns after the prompt, as messages in JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from mmrl.data.rows import RowProblem, describe
from mmrl.data.serialise import messages_to_json
from mmrl.data.turns import Turn, read_turn
from mmrl.types import Message, TextPart

PAIR = ("chosen", "rejected")
JUDGED = ("completion", "label")


@dataclass(frozen=True)
class Preference:
    """prompt: what both answers begin with, as the row has it; None where they do not repeat it."""

    prompt: Any | None
    chosen: list[dict[str, Any]]
    rejected: list[dict[str, Any]]


def read_preference(values: Mapping[str, Any], *, has_prompt: bool) -> Preference | None:
    """What the columns `chosen` and `rejected` say; None unless both are filled. Raises RowProblem for other types."""
    chosen, rejected = (values.get(name) for name in PAIR)
    filled = [name for name in PAIR if not _is_empty(values.get(name))]
    for name in filled:
        if not isinstance(values[name], str | Mapping | list | tuple):
            raise RowProblem(name, f"must be text or messages (got {describe(values[name])})")
    if len(filled) < len(PAIR):
        return None
    if chosen == rejected and not has_prompt:
        raise RowProblem("chosen", "and rejected are identical, and there is no prompt; give two different answers")
    if isinstance(chosen, str) and isinstance(rejected, str):
        prompt = "" if has_prompt else _common_text(chosen, rejected)
        texts = (answer.removeprefix(prompt) for answer in (chosen, rejected))
        return Preference(prompt or None, *(_texts_as_messages(text) for text in texts))
    first, second = (_as_list(answer, name) for answer, name in zip((chosen, rejected), PAIR, strict=True))
    common = [pair[0] for pair in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))]
    if common and _is_assistant(first[0]):
        common = []  # answers that begin alike are answers still
    return Preference(common or None, _answer(first, len(common), "chosen"), _answer(second, len(common), "rejected"))


def answer_messages(value: Any, field: str) -> list[dict[str, Any]]:
    """An answer of one column, text or messages, as messages in JSON form."""
    return _texts_as_messages(value) if isinstance(value, str) else _answer(_as_list(value, field), 0, field)


def single_answer(values: Mapping[str, Any], *, has_answer: bool) -> dict[str, Any]:
    """The one of `chosen` and `rejected` that is filled, as messages; it may stand alone beside an answer only."""
    filled = [name for name in PAIR if not _is_empty(values.get(name))]
    if len(filled) != 1:
        return {}
    name, missing = filled[0], PAIR[1 - PAIR.index(filled[0])]
    if not has_answer:
        raise RowProblem(
            missing,
            f"is missing beside `{name}`; fill both, or say with --map answer={name} that it is the answer",
        )
    return {name: answer_messages(values[name], name)}


def _is_empty(answer: Any) -> bool:
    return answer is None or (isinstance(answer, str | Mapping | list | tuple) and not answer)


def _as_list(answer: Any, field: str) -> Sequence[Any]:
    if isinstance(answer, str):
        return [{"role": "assistant", "content": answer}]
    if isinstance(answer, Mapping):
        return [answer]
    if not answer:
        raise RowProblem(field, "is empty; it must hold the answer as text or messages")
    return list(answer)


def _answer(messages: Sequence[Any], num_common: int, field: str) -> list[dict[str, Any]]:
    turns = [read_turn(message, f"{field}[{index}]") for index, message in enumerate(messages)][num_common:]
    if not turns or turns[0].role != "assistant" or turns[-1].role != "assistant":
        got = ", ".join(turn.role for turn in turns) or "nothing"
        raise RowProblem(field, f"must begin and end with an assistant turn after the prompt (got {got})")
    if any(turn.has_images for turn in turns):
        raise RowProblem(field, "is what the model learns to write and holds an image")
    return messages_to_json([_message(turn) for turn in turns])


def _message(turn: Turn) -> Message:
    return Message(turn.role, tuple(TextPart(part) for part in turn.parts if isinstance(part, str)))


def _texts_as_messages(text: str) -> list[dict[str, Any]]:
    return messages_to_json([Message("assistant", (TextPart(text),))])


def _is_assistant(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role", message.get("from")) in ("assistant", "gpt", "model")


def _common_text(first: str, second: str) -> str:
    """What both texts begin with, up to its last white space: two answers may begin with the same letters."""
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    common = first[:length]
    end = max((index + 1 for index, character in enumerate(common) if character.isspace()), default=0)
    if not common[:end].strip():
        raise RowProblem(
            "chosen", f"and rejected begin with no text in common, and there is no prompt ({describe(first)})"
        )
    return common[:end]
