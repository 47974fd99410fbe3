"""The digits data sets: sizes, answers that fit their images, and no image in two splits."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from mmrl.data import Dataset, load_dataset
from mmrl.data.digits import build_digits, digit_texts
from mmrl.data.registry import DatasetRegistry

IMAGE_SETS = ("digits-which", "digits-parity", "digits-sum", "digits-second")
SPLITS = ("train", "validation", "test")
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(tmp_path_factory.mktemp("home")))
        yield build_digits()


def splits_of(name: str) -> dict[str, Dataset]:
    return {split: load_dataset(f"{name}@{split}") for split in SPLITS}


def test_five_data_sets_have_three_splits_each(built: list[str]) -> None:
    assert built == [*IMAGE_SETS, "arithmetic"]
    sizes = {name: [len(data) for data in splits_of(name).values()] for name in built}
    assert sizes == {name: [1200, 300, 297] for name in built[:4]} | {"arithmetic": [480, 96, 96]}


@pytest.mark.parametrize("name", IMAGE_SETS)
def test_no_image_is_in_two_splits(name: str) -> None:
    images = {
        split: {image.sha256 for sample in data for image in sample.images} for split, data in splits_of(name).items()
    }
    assert [len(images[split]) for split in SPLITS] == [1200, 300, 297]
    assert len(set.union(*images.values())) == 1797


def test_images_keep_their_split_over_the_data_sets() -> None:
    tests = [
        {image.sha256 for sample in load_dataset(f"{name}@test") for image in sample.images} for name in IMAGE_SETS
    ]
    assert all(images == tests[0] for images in tests)


def test_digit_and_image_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    originals = load_digits()
    known = {image.tobytes(): int(value) for image, value in zip(originals.images, originals.target, strict=True)}
    test = load_dataset("digits-which@test")
    for sample in test:
        (image,) = test.open_images(sample)
        assert (image.mode, image.size) == ("RGB", (56, 56))
        small = np.asarray(image)[::7, ::7, 0]
        assert (np.asarray(image) == small.repeat(7, 0).repeat(7, 1)[..., None]).all()
        assert sample.answer == str(known[np.rint(small * (16 / 255)).tobytes()])


def test_the_other_answers_follow_from_the_digits() -> None:
    differ = 0
    digit_of = {
        sample.images[0].sha256: int(sample.answer or "")
        for data in splits_of("digits-which").values()
        for sample in data
    }
    for data in splits_of("digits-parity").values():
        assert all(sample.answer == ("even", "odd")[digit_of[sample.images[0].sha256] % 2] for sample in data)
    for data in splits_of("digits-sum").values():
        for sample in data:
            assert len(sample.images) == 2
            assert sample.answer == str(sum(digit_of[image.sha256] for image in sample.images))
    for data in splits_of("digits-second").values():
        for sample in data:
            first, second = (str(digit_of[image.sha256]) for image in sample.images)
            assert sample.answer == second
            differ += first != second
    assert differ > 1500, "the first digit is no answer to it"


def test_prompts_are_few_and_end_with_the_same_request() -> None:
    texts = {name: {sample.messages[0].text for sample in load_dataset(name)} for name in IMAGE_SETS}
    assert texts == {
        "digits-which": {"Which digit is this? Answer in \\boxed{}."},
        "digits-parity": {"Is this digit odd or even? Answer in \\boxed{}."},
        "digits-sum": {"What is the sum of these two digits? Answer in \\boxed{}."},
        "digits-second": {"What is the second of these two digits? Answer in \\boxed{}."},
    }


def test_arithmetic_is_right_and_no_question_is_in_two_splits() -> None:
    data = splits_of("arithmetic")
    questions = [sample.messages[0].text for split in data.values() for sample in split]
    assert len(questions) == len(set(questions)) == 21 * 21 + 21 * 22 // 2
    for sample in data["test"]:
        assert sample.images == ()
        question = sample.messages[0].text.removeprefix("What is ").removesuffix("? Answer in \\boxed{}.")
        left, sign, right = question.split()
        assert sample.answer == str(int(left) + int(right) if sign == "+" else int(left) - int(right))


def test_texts_cover_the_prompts_and_the_answers_of_all() -> None:
    texts = digit_texts()
    assert "Which digit is this? Answer in \\boxed{}." in texts
    assert "What is 12 + 7? Answer in \\boxed{}." in texts
    assert {f"\\boxed{{{answer}}}" for answer in ("0", "18", "40", "odd", "even")} <= set(texts)


def test_script_builds_where_it_is_told_and_again_changes_nothing(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = DatasetRegistry()
    before = registry.all()
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(sys, "argv", ["build.py", "--home", str(registry.root.parent)])
    runpy.run_path(str(REPOSITORY / "datasets" / "digits" / "build.py"), run_name="__main__")
    assert capsys.readouterr().out.split() == built
    assert registry.all() == before
    assert all(len(registry.versions(name)) == 1 for name in built)
    assert not (tmp_path / "elsewhere").exists()
