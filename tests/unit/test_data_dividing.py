"""A data set divided in two."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmrl.data.dividing import divide_dataset, held_out_rows
from mmrl.data.normalise import make_sample
from mmrl.data.registry import DatasetRegistry
from mmrl.errors import DataError
from mmrl.types import ImagePart, ImageRef, Message, Sample, TextPart


def sample(question: str, answer: str, *images: str) -> Sample:
    parts = [ImagePart(ImageRef(image * 64, 8, 8)) for image in images]
    return make_sample((Message("user", (*parts, TextPart(question))),), answer, {})


def test_a_tenth_of_unrelated_rows_is_held_out() -> None:
    rows = [sample(f"What is {number}?", str(number)) for number in range(200)]
    assert len(held_out_rows(rows, share=0.1, seed=0)) == 20


def test_the_same_seed_holds_out_the_same_rows_and_another_one_others() -> None:
    rows = [sample(f"What is {number}?", str(number)) for number in range(200)]
    first = held_out_rows(rows, share=0.1, seed=0)
    assert first == held_out_rows(rows, share=0.1, seed=0)
    assert first != held_out_rows(rows, share=0.1, seed=1)


def test_rows_that_share_an_image_or_a_prompt_stay_together() -> None:
    chained = [sample("left?", "1", "a", "b"), sample("right?", "2", "b"), sample("both?", "3", "c", "a")]
    asked_twice = [sample("What is 1 + 1?", "2"), sample("What is 1 + 1?", "two")]
    rows = [*chained, *asked_twice, *[sample(f"What is {number}?", str(number)) for number in range(15)]]
    for seed in range(20):
        held = held_out_rows(rows, share=0.3, seed=seed)
        assert len(held) == 6
        assert len(held & {0, 1, 2}) in (0, 3)
        assert len(held & {3, 4}) in (0, 2)


def test_the_same_question_about_other_images_is_another_prompt() -> None:
    rows = [sample("Which digit?", "1", image) for image in "0123456789"]
    assert len(held_out_rows(rows, share=0.2, seed=0)) == 2


def test_both_parts_are_registered_and_together_hold_every_row_once(tmp_path: Path) -> None:
    registry = DatasetRegistry(tmp_path)
    rows = [sample(f"What is {number}?", str(number)) for number in range(20)]
    registry.register("sums", {"train": rows}, source="test")
    divided = divide_dataset("sums", split="train", share=0.25, into=("a", "b"), registry=registry)
    assert (divided.rest.num_rows, divided.held_out.num_rows) == (15, 5)
    parts = [each.id for info in (divided.rest, divided.held_out) for each in registry.read(info, "train")]
    assert sorted(parts) == sorted(each.id for each in rows)
    assert registry.find("sums").num_rows == 20


def test_rows_that_all_share_one_image_cannot_be_divided(tmp_path: Path) -> None:
    registry = DatasetRegistry(tmp_path)
    registry.register("one", {"train": [sample(f"{n}?", str(n), "a") for n in range(9)]}, source="test")
    with pytest.raises(DataError, match="share prompts or images"):
        divide_dataset("one", split="train", share=0.3, into=("a", "b"), registry=registry)
    assert registry.names() == ["one"]


@pytest.mark.parametrize(
    ("share", "into", "message"),
    [(0.0, ("a", "b"), "share: got 0"), (1.0, ("a", "b"), "share: got 1"), (0.5, ("a", "a"), "names of their own")],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, share: float, into: tuple[str, str], message: str) -> None:
    registry = DatasetRegistry(tmp_path)
    registry.register("sums", {"train": [sample("1?", "1"), sample("2?", "2")]}, source="test")
    with pytest.raises(DataError, match=message):
        divide_dataset("sums", split="train", share=share, into=into, registry=registry)
