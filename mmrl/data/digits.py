"""Small data sets for the quickstart and for tests, made offline from scikit-learn's 1,797 handwritten digits.

digits-which: which digit an image shows. digits-parity: whether it is odd or even. digits-sum: the sum of the digits
in two images. digits-second: the digit in the second of two. arithmetic: additions and subtractions as text. Each has
the splits train, validation and test, and no image or question of one split is in another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from PIL import Image

from mmrl.data.images import ImageStore
from mmrl.data.normalise import make_sample
from mmrl.data.registry import DatasetRegistry
from mmrl.types import ContentPart, ImagePart, ImageRef, Message, Sample, TextPart

WHICH_PROMPT = "Which digit is this? Answer in \\boxed{}."
PARITY_PROMPT = "Is this digit odd or even? Answer in \\boxed{}."
SUM_PROMPT = "What is the sum of these two digits? Answer in \\boxed{}."
SECOND_PROMPT = "What is the second of these two digits? Answer in \\boxed{}."
ARITHMETIC_PROMPT = "What is {question}? Answer in \\boxed{{}}."

SIDE_PIXELS = 56
NUM_VALIDATION = 300
NUM_TEST = 297
LARGEST_OPERAND = 20
SHARE_HELD_OUT = 7

T = TypeVar("T")


@dataclass(frozen=True)
class Digit:
    """An image of the store and the digit that it shows. index: its row in scikit-learn's data set."""

    image: ImageRef
    value: int
    index: int


def build_digits(*, registry: DatasetRegistry | None = None, store: ImageStore | None = None) -> list[str]:
    """Registers the five data sets and returns their names. What is there already stays as it is."""
    registry, store = registry or DatasetRegistry(), store or ImageStore()
    digits = _split(_load_digits(store), num_validation=NUM_VALIDATION, num_test=NUM_TEST)
    questions = _arithmetic_questions()
    held_out = len(questions) // SHARE_HELD_OUT
    makers: dict[str, dict[str, Iterator[Sample]]] = {
        "digits-which": _each_split(digits, _which),
        "digits-parity": _each_split(digits, _parity),
        "digits-sum": _each_split(digits, _sum),
        "digits-second": _each_split(digits, _second),
        "arithmetic": _each_split(_split(questions, num_validation=held_out, num_test=held_out), _arithmetic),
    }
    for name, splits in makers.items():
        source = "made by mmrl" if name == "arithmetic" else "sklearn.datasets.load_digits"
        registry.register(name, splits, source=source)
    return list(makers)


def digit_texts() -> list[str]:
    """Prompts and responses of these data sets, to train a small tokenizer on.

    Those of digits-second are made of the words of the others, and are left out: they would not change what it can
    write, yet every small model that was measured before.
    """
    prompts = [WHICH_PROMPT, PARITY_PROMPT, SUM_PROMPT]
    prompts += [ARITHMETIC_PROMPT.format(question=question) for question in ("12 + 7", "20 - 3", "5 + 16", "9 - 8")]
    answers = ["odd", "even", *map(str, range(2 * LARGEST_OPERAND + 1))]
    return prompts + [boxed(answer) for answer in answers]


def boxed(answer: str) -> str:
    """The response that these data sets ask for."""
    return f"\\boxed{{{answer}}}"


def _load_digits(store: ImageStore) -> list[Digit]:
    """The digits, enlarged without smoothing: each of the 8x8 values, 0 to 16, is a block of 7x7 equal pixels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    levels = np.rint(data.images * (255 / 16)).astype(np.uint8)
    enlarged = levels.repeat(SIDE_PIXELS // 8, axis=1).repeat(SIDE_PIXELS // 8, axis=2)
    return [
        Digit(store.add(Image.fromarray(pixels)), int(value), index)
        for index, (pixels, value) in enumerate(zip(enlarged, data.target, strict=True))
    ]


def _arithmetic_questions() -> list[str]:
    operands = range(LARGEST_OPERAND + 1)
    sums = [f"{left} + {right}" for left in operands for right in operands]
    return sums + [f"{left} - {right}" for left in operands for right in range(left + 1)]


def _split(items: Sequence[T], *, num_validation: int, num_test: int) -> dict[str, list[T]]:
    """Divides the items in an order that looks random and is the same everywhere: that of their hashes."""
    ordered = sorted(items, key=_hash)
    num_train = len(items) - num_validation - num_test
    return {
        "train": ordered[:num_train],
        "validation": ordered[num_train : num_train + num_validation],
        "test": ordered[num_train + num_validation :],
    }


def _hash(item: object) -> str:
    key = str(item.index) if isinstance(item, Digit) else str(item)
    return hashlib.sha256(key.encode()).hexdigest()


def _each_split(
    splits: dict[str, list[T]], make: Callable[[Sequence[T], str], Iterator[Sample]]
) -> dict[str, Iterator[Sample]]:
    return {split: make(items, split) for split, items in splits.items()}


def _which(digits: Sequence[Digit], split: str) -> Iterator[Sample]:
    for digit in digits:
        yield _sample([digit], WHICH_PROMPT, str(digit.value), split)


def _parity(digits: Sequence[Digit], split: str) -> Iterator[Sample]:
    for digit in digits:
        yield _sample([digit], PARITY_PROMPT, "odd" if digit.value % 2 else "even", split)


def _sum(digits: Sequence[Digit], split: str) -> Iterator[Sample]:
    """Each image once on the left and once on the right, paired within its split."""
    for left, right in zip(digits, [*digits[1:], digits[0]], strict=True):
        yield _sample([left, right], SUM_PROMPT, str(left.value + right.value), split)


def _second(digits: Sequence[Digit], split: str) -> Iterator[Sample]:
    """The pairs of `_sum`."""
    for left, right in zip(digits, [*digits[1:], digits[0]], strict=True):
        yield _sample([left, right], SECOND_PROMPT, str(right.value), split)


def _arithmetic(questions: Sequence[str], split: str) -> Iterator[Sample]:
    for question in questions:
        left, sign, right = question.split()
        answer = int(left) + int(right) if sign == "+" else int(left) - int(right)
        yield _sample([], ARITHMETIC_PROMPT.format(question=question), str(answer), split)


def _sample(digits: Iterable[Digit], prompt: str, answer: str, split: str) -> Sample:
    parts: list[ContentPart] = [ImagePart(digit.image) for digit in digits]
    meta = {"source": "digits", "split": split, "digits": [digit.value for digit in digits]}
    return make_sample((Message("user", (*parts, TextPart(prompt))),), answer, meta)
