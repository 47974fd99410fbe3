"""`mmrl sample compare`: the same prompts at several steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mmrl.cli.output import fold, print_table, terminal_width
from mmrl.errors import ConfigError, NotFoundError
from mmrl.evaluation.comparison import PromptRow, side_by_side
from mmrl.runs.checkpoint_refs import step_at
from mmrl.runs.inert import inert
from mmrl.runs.reader import RunReader
from mmrl.runs.records import ResponseRecord
from mmrl.types import Sample

_WIDTH = 100


@dataclass(frozen=True)
class ComparedSteps:
    """steps: in the order asked for; labels: as they were asked for, with the step where that is not a number."""

    split: str
    steps: tuple[int, ...]
    labels: tuple[str, ...]
    rows: tuple[PromptRow, ...]


def compare_steps(reader: RunReader, text: str, *, run: str, split: str) -> ComparedSteps:
    """run: as the user named it. text: steps by number, `best` or `last`, with commas between.

    Raises ConfigError for words that are no steps, NotFoundError that names the steps whose samples were kept.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) < 2:
        raise ConfigError(f"--steps: a comparison needs at least two steps, such as 0,100,best (got {text!r})")
    steps = tuple(_step(run, word) for word in words)
    known = reader.steps(split)
    for step in steps:
        if step not in known:
            raise NotFoundError(
                f"{reader.run_dir} has no {split} samples of step {step}; it has those of "
                f"{', '.join(map(str, known)) or 'no step'}"
            )
    labels = tuple(word if word.isdecimal() else f"{word} ({step})" for word, step in zip(words, steps, strict=True))
    rows = side_by_side([reader.sample_groups(step, split, with_tokens=False) for step in steps])
    return ComparedSteps(split, steps, labels, tuple(rows))


def print_comparison(reader: RunReader, compared: ComparedSteps, rows: Sequence[PromptRow]) -> None:
    """Each prompt, then its best response at each step; in a table of mean rewards first."""
    means = [(label, *_figures(compared, index)) for index, label in enumerate(compared.labels)]
    print_table(means, ("step", "prompts", "mean reward", "mean length"))
    width = terminal_width() or _WIDTH
    for number, row in enumerate(rows):
        print(f"\nprompt {number} ({row.prompt_id})")
        for message in row.prompt:
            _print_text(f"{message.role}: ", message.text, width)
        for image in dict.fromkeys(image.sha256 for image in Sample(row.prompt_id, row.prompt).images):
            print(f"image: {reader.image(image) or image}")
        if row.answer is not None:
            _print_text("answer: ", row.answer, width)
        for label, responses in zip(compared.labels, row.responses, strict=True):
            for response in responses or ():
                reward = "-" if response.reward is None else f"{response.reward:.3g}"
                _print_text(f"step {label}, reward {reward}: ", response.text or "(text not kept)", width)
            if not responses:
                print(f"step {label}: this prompt was not kept")


def as_json(reader: RunReader, compared: ComparedSteps, rows: Sequence[PromptRow]) -> dict[str, Any]:
    return {
        "split": compared.split,
        "steps": compared.steps,
        "num_prompts": len(compared.rows),
        "prompts": [
            {
                "prompt_id": row.prompt_id,
                "prompt": [{"role": message.role, "text": message.text} for message in row.prompt],
                "answer": row.answer,
                "meta": row.meta,
                "responses": {
                    str(step): [_response(response) for response in responses]
                    for step, responses in zip(compared.steps, row.responses, strict=True)
                },
            }
            for row in rows
        ],
    }


def _step(run: str, word: str) -> int:
    if word.isdecimal():
        return int(word)
    if word not in ("best", "last"):
        raise ConfigError(f"--steps: got {word!r}; allowed: numbers of steps, best, last")
    return step_at(run, word)


def _figures(compared: ComparedSteps, index: int) -> tuple[int, float | None, float | None]:
    responses = [response for row in compared.rows for response in row.responses[index]]
    rewards = [response.reward for response in responses if response.reward is not None]
    count = sum(bool(row.responses[index]) for row in compared.rows)
    mean = sum(rewards) / len(rewards) if rewards else None
    length = sum(response.length for response in responses) / len(responses) if responses else None
    return count, mean, length


def _print_text(head: str, text: str, width: int) -> None:
    lines = fold(inert(text), max(20, width - len(head)))
    print(head + lines[0])
    for line in lines[1:]:
        print(" " * len(head) + line)


def _response(response: ResponseRecord) -> dict[str, Any]:
    return {
        "text": response.text,
        "reward": response.reward,
        "parts": {part.name: part.value for part in response.parts},
        "length": response.length,
        "finish_reason": response.finish_reason,
    }
