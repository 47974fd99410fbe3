"""How lengths, images and answers of a data set are distributed."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import numpy as np

from mmrl.types import Sample

MAX_DISTINCT_ANSWERS = 100_000
NUM_ANSWERS_SHOWN = 20


class Distribution:
    """Whole numbers, eight bytes each."""

    def __init__(self) -> None:
        self._values = array("q")

    def add(self, value: int) -> None:
        self._values.append(value)

    def __len__(self) -> int:
        return len(self._values)

    def summary(self) -> dict[str, float] | None:
        """min, p05, median, mean, p95, max; None without values."""
        if not self._values:
            return None
        values = np.frombuffer(self._values, dtype=np.int64)
        low, middle, high = np.percentile(values, [5, 50, 95])
        return {
            "min": int(values.min()),
            "p05": float(low),
            "median": float(middle),
            "mean": float(values.mean()),
            "p95": float(high),
            "max": int(values.max()),
        }


class Statistics:
    """Fed sample by sample; memory grows by some tens of bytes a row."""

    def __init__(self) -> None:
        self._prompt_characters = Distribution()
        self._turns = Distribution()
        self._images_per_row = Counter[int]()
        self._widths, self._heights, self._pixels = Distribution(), Distribution(), Distribution()
        self._answer_characters = Distribution()
        self._answers = Counter[str]()
        self._num_unanswered = 0

    def add(self, sample: Sample) -> None:
        self._prompt_characters.add(sum(len(message.text) for message in sample.messages))
        self._turns.add(len(sample.messages))
        images = sample.images
        self._images_per_row[len(images)] += 1
        for image in images:
            self._widths.add(image.width)
            self._heights.add(image.height)
            self._pixels.add(image.width * image.height)
        self._add_answer(sample.answer)

    def to_json(self) -> dict[str, Any]:
        """Lengths in characters, sizes in pixels; answers by how often they come."""
        return {
            "prompt_characters": self._prompt_characters.summary(),
            "turns": self._turns.summary(),
            "images": {
                "per_row": {str(count): rows for count, rows in sorted(self._images_per_row.items())},
                "width": self._widths.summary(),
                "height": self._heights.summary(),
                "pixels": self._pixels.summary(),
            },
            "answers": {
                "characters": self._answer_characters.summary(),
                "missing": self._num_unanswered,
                "distinct": len(self._answers),
                "distinct_is_a_lower_bound": len(self._answers) >= MAX_DISTINCT_ANSWERS,
                "most_common": dict(self._answers.most_common(NUM_ANSWERS_SHOWN)),
            },
        }

    def _add_answer(self, answer: str | None) -> None:
        if answer is None:
            self._num_unanswered += 1
            return
        self._answer_characters.add(len(answer))
        shown = answer if len(answer) <= 80 else f"{answer[:79]}…"
        if shown in self._answers or len(self._answers) < MAX_DISTINCT_ANSWERS:
            self._answers[shown] += 1


def statistics_lines(values: dict[str, Any]) -> list[str]:
    """The same for people, a line each."""
    images, answers = values["images"], values["answers"]
    lines = [
        _line("prompt, characters", values["prompt_characters"]),
        _line("turns", values["turns"]),
        "images a row: " + ", ".join(f"{count} in {rows} rows" for count, rows in images["per_row"].items()),
        _line("image width, pixels", images["width"]),
        _line("image height, pixels", images["height"]),
        _line("answer, characters", answers["characters"]),
        f"answers: {answers['distinct']} different, {answers['missing']} missing; most common: "
        + ", ".join(f"{text!r} {count}" for text, count in list(answers["most_common"].items())[:5]),
    ]
    return [line for line in lines if line]


def _line(name: str, summary: dict[str, float] | None) -> str:
    return "" if summary is None else f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in summary.items())
