"""The shapes of rows that other tools write, each read as turns, an answer and what is kept besides.

verl        prompt, data_source, reward_model.ground_truth, extra_info, images
EasyR1      problem, answer, images
TRL         prompt, or messages; completion (with `label`: judged good or bad); chosen and rejected; image or images
ShareGPT    conversations of {from, value}, system, tools; chosen and rejected      (LLaMA-Factory)
Alpaca      instruction, input, output, system, history; chosen and rejected         (LLaMA-Factory)
OpenAI      messages with content parts

Every shape is told by its columns, row by row; of text only that of messages as JSON is read as more than text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmrl.data.preference import PAIR, answer_messages, read_preference, single_answer
from mmrl.data.rows import RowProblem, describe
from mmrl.data.turns import MESSAGE_COLUMNS, PROMPT_COLUMNS, Turn, prompt_column, read_turn, read_turns, user_turn

ANSWER_COLUMN = "answer"
_UNUSABLE = ("videos", "video", "audios", "audio")


@dataclass(frozen=True)
class Shape:
    """column: where the prompt is. turns: a last one of the assistant is the answer, or a text to learn.

    answer: as the row has it, of any type. extra: goes to meta. used: columns that do not go there themselves.
    """

    column: str
    turns: list[Turn]
    answer: Any
    extra: dict[str, Any]
    used: frozenset[str]


def read_shape(values: Mapping[str, Any]) -> Shape:
    """Raises RowProblem for a row that fits no shape."""
    for name in _UNUSABLE:
        if values.get(name):
            raise RowProblem(name, f"holds {describe(values[name])}; only images and text can be used so far")
    values = _with_good_and_bad_output(values)
    preference = read_preference(values, has_prompt=any(values.get(name) for name in PROMPT_COLUMNS))
    implicit = preference is not None and not any(values.get(name) for name in PROMPT_COLUMNS)
    extra: dict[str, Any] = {}
    used: set[str] = {ANSWER_COLUMN}
    if preference is not None:
        extra |= {"chosen": preference.chosen, "rejected": preference.rejected}
        used |= set(PAIR)
    elif any(values.get(name) is not None for name in PAIR):
        extra |= single_answer(values, has_answer=values.get(ANSWER_COLUMN) is not None)
        used |= set(PAIR)
    if implicit and preference is not None:
        column, turns = "chosen", read_turns(preference.prompt, "chosen")
    else:
        column = prompt_column(values)
        turns = _alpaca_turns(values, used) if column == "instruction" else read_turns(values[column], column)
    used |= {column}
    turns = _with_system(values, turns, used)
    turns = _with_completion(values, column, turns, extra, used)
    extra |= _source(values)
    is_answered = preference is not None or turns[-1].role == "assistant"
    return Shape(column, turns, _answer(values, is_answered=is_answered), extra, frozenset(used))


def _alpaca_turns(values: Mapping[str, Any], used: set[str]) -> list[Turn]:
    history = values.get("history") or []
    turns: list[Turn] = []
    for index, pair in enumerate(history):
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise RowProblem(f"history[{index}]", f"must be a pair of question and answer (got {describe(pair)})")
        turns += [user_turn(pair[0]), Turn("assistant", (pair[1],))]
    texts = [values.get(name) for name in ("instruction", "input")]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise RowProblem("instruction", f"and input must be text (got {describe(texts[0])} and {describe(texts[1])})")
    turns.append(user_turn("\n".join(text for text in texts if text)))
    used |= {"input", "history"}
    output = values.get("output")
    if isinstance(output, str) and output:
        turns.append(Turn("assistant", (output,)))
        used.add("output")
    elif output and not isinstance(output, str):
        raise RowProblem("output", f"must be text, or a list of a good and a bad answer (got {describe(output)})")
    return turns


def _with_good_and_bad_output(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Alpaca's older pairs: `output` is [chosen, rejected]."""
    output = values.get("output")
    if not (isinstance(output, list | tuple) and len(output) == 2 and all(isinstance(text, str) for text in output)):
        return values
    if values.get("instruction") is None or any(values.get(name) is not None for name in PAIR):
        return values
    rest = {name: value for name, value in values.items() if name != "output"}
    return rest | dict(zip(PAIR, output, strict=True))


def _with_system(values: Mapping[str, Any], turns: list[Turn], used: set[str]) -> list[Turn]:
    """A column `system` is the system turn, unless the row has one already; an empty one is none."""
    system = values.get("system")
    if system is None:
        return turns
    if not isinstance(system, str):
        raise RowProblem("system", f"must be text (got {describe(system)})")
    used.add("system")
    if system and turns[0].role == "system":
        if turns[0].text != system:
            raise RowProblem("system", "is filled and the messages begin with another system turn; keep one of them")
        return turns
    return [Turn("system", (system,)), *turns] if system else turns


def _with_completion(
    values: Mapping[str, Any], column: str, turns: list[Turn], extra: dict[str, Any], used: set[str]
) -> list[Turn]:
    """TRL's `completion` is the answer. With a `label` it was only judged good or bad, and is kept in meta."""
    completion, label = values.get("completion"), values.get("label")
    if column in MESSAGE_COLUMNS:
        return _with_judged_turn(values, turns, extra, used)
    if not (isinstance(completion, str | list | tuple) and completion):
        return turns
    used.add("completion")
    if isinstance(label, bool):
        extra["completion"] = answer_messages(completion, "completion")
        return turns
    if isinstance(completion, str):
        return [*turns, Turn("assistant", (completion,))]
    answer_messages(completion, "completion")
    return [*turns, *(read_turn(message, f"completion[{index}]") for index, message in enumerate(completion))]


def _with_judged_turn(
    values: Mapping[str, Any], turns: list[Turn], extra: dict[str, Any], used: set[str]
) -> list[Turn]:
    """LLaMA-Factory's `kto_tag` says that the last turn was judged good or bad: it becomes `completion` and `label`."""
    label = values.get("kto_tag")
    if not isinstance(label, bool) or turns[-1].role != "assistant":
        return turns
    used.add("kto_tag")
    extra |= {"completion": answer_messages(turns[-1].text, "completion"), "label": label}
    return turns[:-1]


def _answer(values: Mapping[str, Any], *, is_answered: bool) -> Any:
    """`answer`, else verl's `reward_model.ground_truth`; a table may keep that object as JSON text."""
    answer, rule = values.get(ANSWER_COLUMN), values.get("reward_model")
    if answer is not None or rule is None:
        return answer
    if isinstance(rule, str):
        rule = _object_in(rule)
    if isinstance(rule, Mapping):
        return rule.get("ground_truth")
    if is_answered:
        return None
    raise RowProblem(
        "reward_model",
        f"must be an object with `ground_truth`, or one as JSON text (got {describe(values['reward_model'])}); name "
        "another column of answers with --map answer=COLUMN",
    )


def _object_in(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _source(values: Mapping[str, Any]) -> dict[str, Any]:
    """verl's `data_source` is the row's source."""
    source = values.get("data_source")
    return {"source": source} if isinstance(source, str) and "source" not in values else {}
