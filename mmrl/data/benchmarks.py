"""Public benchmarks in the files that their makers give out: each row as mmrl's own columns.

mmmu        MMMU/MMMU: question with <image 1> …, options as a Python list in text, answer a letter or text, image_1 …
mathvista   AI4Math/MathVista: question, decoded_image, choices, unit, precision, answer, metadata
geometry3k  hiyouga/geometry3k (images, problem, answer), and the first release: problem_text, choices, answer a letter
gsm8k       openai/gsm8k: question, and an answer that ends in `#### 42`

What is asked is the question as it stands, with lettered choices where there are some, and then how to answer, so that
`math`, `choice` and `exact` find the answer in a box. A row's `source` is the benchmark, with its subject where it has
one: scores are told by source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal, get_args

from mmrl.data.rows import RowProblem

Benchmark = Literal["mmmu", "mathvista", "geometry3k", "gsm8k"]
BENCHMARKS: tuple[Benchmark, ...] = get_args(Benchmark)

BOXED = "Put your final answer within \\boxed{}."
BOXED_LETTER = "Answer with the letter of the right choice within \\boxed{}."

_GSM8K_ANSWER = re.compile(r"####\s*(.+?)\s*\Z", re.DOTALL)
_NUMBERED_PLACE = re.compile(r"<image[ _]?(\d+)>", re.IGNORECASE)


def benchmark_row(benchmark: Benchmark, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the benchmark as columns `prompt`, `images`, `answer`, `source` and what else it holds.

    Raises RowProblem for a row that lacks what the benchmark's rows have.
    """
    return _READERS[benchmark](values)


def _mmmu(values: Mapping[str, Any]) -> dict[str, Any]:
    question, options = _text(values, "question"), _options(values.get("options"))
    text = _with_choices(question, options)
    images: list[Any] = []

    def place(match: re.Match[str]) -> str:
        column = f"image_{match[1]}"
        if values.get(column) is None:
            raise RowProblem(column, f"is empty, and the question or a choice names {match[0]}; get the row again")
        images.append(values[column])
        return "<image>"

    text = _NUMBERED_PLACE.sub(place, text)
    if not images:
        images = [values[f"image_{index}"] for index in range(1, 8) if values.get(f"image_{index}") is not None]
        text = "<image>" * len(images) + text
    subject = str(values.get("subfield") or values.get("topic_difficulty") or "")
    kept = {name: values[name] for name in ("id", "question_type", "subfield", "topic_difficulty") if values.get(name)}
    return _row("mmmu", subject, text, images, _text(values, "answer"), kept)


def _mathvista(values: Mapping[str, Any]) -> dict[str, Any]:
    choices = [str(choice) for choice in values.get("choices") or ()]
    answer = _text(values, "answer")
    if choices:
        if answer not in choices:
            raise RowProblem("answer", f"{answer!r} is none of the choices {choices}")
        answer = ascii_uppercase[choices.index(answer)]
    question = _text(values, "question")
    if values.get("unit"):
        question += f" (Unit: {values['unit']})"
    if not choices and values.get("precision"):
        digits = int(float(values["precision"]))
        question += f" Give the answer with {digits} decimal place{'s' if digits != 1 else ''}."
    metadata = values.get("metadata") or {}
    subject = str(metadata.get("task") or metadata.get("source") or "") if isinstance(metadata, Mapping) else ""
    image = values.get("decoded_image") if values.get("decoded_image") is not None else values.get("image")
    if image is None:
        raise RowProblem("decoded_image", "is empty; every row of MathVista has an image")
    names = ("pid", "question_type", "answer_type", "unit", "precision", "metadata")
    kept = {name: values[name] for name in names if values.get(name) is not None}
    return _row("mathvista", subject, "<image>" + _with_choices(question, choices), [image], answer, kept)


def _geometry3k(values: Mapping[str, Any]) -> dict[str, Any]:
    choices = [str(choice) for choice in values.get("choices") or ()]
    if values.get("problem_text") is not None:
        image = next(
            (values[name] for name in ("image", "images", "img_diagram") if values.get(name) is not None), None
        )
        images = list(image) if isinstance(image, list | tuple) else [image] if image is not None else []
        text = "<image>" * len(images) + _with_choices(_text(values, "problem_text"), choices)
        return _row("geometry3k", "", text, images, _text(values, "answer"), {"id": values.get("id")})
    images = list(values.get("images") or ())
    problem = _text(values, "problem")
    missing = len(images) - problem.count("<image>")
    text = "<image>" * max(0, missing) + problem
    return _row("geometry3k", "", _with_choices(text, choices), images, _text(values, "answer"), {})


def _gsm8k(values: Mapping[str, Any]) -> dict[str, Any]:
    solution = _text(values, "answer")
    match = _GSM8K_ANSWER.search(solution)
    if match is None:
        raise RowProblem("answer", "does not end in `#### NUMBER`, as answers of GSM8K do")
    kept = {"solution": solution[: match.start()].strip()}
    return _row("gsm8k", "", _with_choices(_text(values, "question"), ()), [], match[1].replace(",", ""), kept)


_READERS: dict[Benchmark, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "mmmu": _mmmu,
    "mathvista": _mathvista,
    "geometry3k": _geometry3k,
    "gsm8k": _gsm8k,
}


def _row(
    benchmark: str, subject: str, prompt: str, images: list[Any], answer: str, kept: Mapping[str, Any]
) -> dict[str, Any]:
    rest = {f"{benchmark}_{name}": value for name, value in kept.items() if value is not None}
    source = f"{benchmark}/{subject}" if subject else benchmark
    return {"prompt": prompt, **({"images": images} if images else {}), "answer": answer, "source": source, **rest}


def _with_choices(question: str, choices: Sequence[str]) -> str:
    if not choices:
        return f"{question.strip()}\n{BOXED}"
    lines = [f"{letter}. {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False)]
    return "\n".join([question.strip(), *lines, BOXED_LETTER])


def _options(value: Any) -> list[str]:
    """A list, or one as Python writes it in text; nothing for an open question."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value) if value.strip() else []
        except (ValueError, SyntaxError, RecursionError) as error:
            raise RowProblem("options", f"is no list in text ({error}); get the row again") from error
    if value is not None and not isinstance(value, list | tuple):
        raise RowProblem("options", f"must be a list (got {type(value).__name__})")
    return [str(option) for option in value or ()]


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if value is None or isinstance(value, list | dict | bytes) or not str(value).strip():
        raise RowProblem(name, "is missing or empty; is it a file of this benchmark?")
    return str(value)
