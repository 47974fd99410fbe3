"""The rewards ocr, iou and point."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError
from rewards_builders import item

from mmrl.config.reward import IouRewardConfig, OcrRewardConfig, PointRewardConfig
from mmrl.rewards.base import RewardFailure, RewardItem
from mmrl.rewards.vision.boxes import Box, Point, read_boxes, read_points
from mmrl.rewards.vision.iou import IouReward
from mmrl.rewards.vision.ocr import OcrReward
from mmrl.rewards.vision.point import PointReward
from mmrl.types import ImagePart, ImageRef, Message


def on_image(response: str, answer: str, *, width: int = 1280, height: int = 720) -> RewardItem:
    base = item(response, answer)
    message = Message("user", (ImagePart(ImageRef("0" * 64, width, height)),))
    return replace(base, sample=replace(base.sample, messages=(message,)))


@pytest.mark.parametrize(
    ("answer", "response", "cer", "wer"),
    [
        ("hello world", "hello world", 1.0, 1.0),
        ("hello world", "  hello\n world ", 1.0, 1.0),
        ("hello world", "hello word", 10 / 11, 0.5),
        ("hello world", "hello", 5 / 11, 0.5),
        ("hello", "hello world", 0.0, 0.0),
        ("ab cd", "cd ab", 1 / 5, 0.0),
        ("abcd", "abcx", 0.75, 0.0),
        ("abcd", "abcde", 0.75, 0.0),
        ("１２３", "123", 1.0, 1.0),
        ("你好世界", "你好世", 0.75, 0.0),
        ("hello", "zzzzzzzzzzzzzzz", 0.0, 0.0),
        ("hello", "", 0.0, 0.0),
        ("hello", "   ", 0.0, 0.0),
    ],
)
def test_ocr_pays_one_minus_the_error_rate(answer: str, response: str, cer: float, wer: float) -> None:
    assert OcrReward(OcrRewardConfig()).score(item(response, answer)).value == pytest.approx(cer)
    assert OcrReward(OcrRewardConfig(unit="word")).score(item(response, answer)).value == pytest.approx(wer)


def test_ocr_forgives_case_and_punctuation_where_asked_for() -> None:
    plain, lenient = OcrRewardConfig(), OcrRewardConfig(ignore_case=True, ignore_punctuation=True)
    assert OcrReward(plain).score(item("hello world", "Hello, World!")).value == pytest.approx(1 - 4 / 13)
    assert OcrReward(lenient).score(item("hello world", "Hello, World!")).value == 1.0


def test_ocr_reads_a_box_where_asked_for() -> None:
    reward = OcrReward(OcrRewardConfig(boxed=True))
    score = reward.score(item(r"It says \boxed{STOP}", "STOP"))
    assert (score.value, score.extracted, score.explanation) == (1.0, "STOP", "CER 0.0%: 0 edits on 4 characters")
    assert reward.score(item("STOP", "STOP")).value == 0.0


@pytest.mark.parametrize(
    ("text", "boxes"),
    [
        ("[10, 20, 30, 40]", [(10, 20, 30, 40)]),
        (
            '```json\n[{"bbox_2d": [1, 2, 3, 4], "label": "cat"}, {"bbox_2d": [5, 6, 7, 8]}]\n```',
            [(1, 2, 3, 4), (5, 6, 7, 8)],
        ),
        ("[[1,2,3,4],[5,6,7,8]]", [(1, 2, 3, 4), (5, 6, 7, 8)]),
        ("<|box_start|>(1,2),(3,4)<|box_end|>", [(1, 2, 3, 4)]),
        ("(0.1, .2, 0.3, 4e-1)", [(0.1, 0.2, 0.3, 0.4)]),
        ("[-1, 2, 3, 4]", [(-1, 2, 3, 4)]),
        ("[1, 2, 3]", []),
        ("[1, 2, 3, 4, 5]", []),
        ("[a, b, c, d]", []),
        ("[1, 2, 3, 4", []),
        ("", []),
    ],
)
def test_boxes_are_read_in_the_forms_that_models_write(text: str, boxes: list[tuple[float, ...]]) -> None:
    assert read_boxes(text, "corners") == [Box(*box) for box in boxes]


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("[10, 20]", [(10, 20)]),
        ("(10, 20) and (30.5, 40)", [(10, 20), (30.5, 40)]),
        ('[{"point_2d": [1, 2], "label": "a"}, {"point_2d": [3, 4]}]', [(1, 2), (3, 4)]),
        ('<point x="10.5" y="20">cat</point>', [(10.5, 20)]),
        ("[1, 2, 3, 4]", []),
        ("ten, twenty", []),
    ],
)
def test_points_are_read_in_the_forms_that_models_write(text: str, points: list[tuple[float, ...]]) -> None:
    assert read_points(text) == [Point(*point) for point in points]


@pytest.mark.parametrize(
    ("form", "numbers"),
    [("corners", "[10, 20, 30, 60]"), ("corner_size", "[10, 20, 20, 40]"), ("centre_size", "[20, 40, 20, 40]")],
)
def test_four_numbers_mean_what_the_form_says(form: str, numbers: str) -> None:
    config = IouRewardConfig.model_validate({"form": form})
    assert IouReward(config).score(on_image(numbers, "[10, 20, 30, 60]")).value == 1.0


# [0,0,10,10] against itself 1; shifted by half 50 of 150; [0,0,10,5] 50 of 100; two of two; one of two; one too many
@pytest.mark.parametrize(
    ("answer", "response", "value"),
    [
        ("[0, 0, 10, 10]", "[0, 0, 10, 10]", 1.0),
        ("[0, 0, 10, 10]", "[5, 0, 15, 10]", 1 / 3),
        ("[0, 0, 10, 10]", "[0, 0, 10, 5]", 0.5),
        ("[0, 0, 10, 10]", "[20, 20, 30, 30]", 0.0),
        ("[0, 0, 10, 10]", "[10, 10, 0, 0]", 0.0),
        ("[[0,0,10,10],[20,20,30,30]]", "[[20,20,30,30],[0,0,10,10]]", 1.0),
        ("[[0,0,10,10],[20,20,30,30]]", "[0, 0, 10, 10]", 0.5),
        ("[0, 0, 10, 10]", "[[0,0,10,10],[0,0,10,10]]", 0.5),
        ("[0, 0, 10, 10]", r"[9, 9, 9, 9] no, \boxed{[0, 0, 10, 10]}", 1.0),
        ("[0, 0, 10, 10]", "[1, 1, 2, 2] <answer>[0, 0, 10, 10]</answer>", 1.0),
        ("[0, 0, 10, 10]", "", 0.0),
        ("[0, 0, 10, 10]", "nothing there", 0.0),
        ("[0, 0, 10, 10]", "[0, 0, 10", 0.0),
        ("[]", "[]", 1.0),
        ("[]", "There is none.", 1.0),
        ("[]", "[0, 0, 10, 10]", 0.0),
        ("[]", "", 0.0),
    ],
)
def test_matched_overlap_over_the_larger_number_of_boxes_is_paid(answer: str, response: str, value: float) -> None:
    assert IouReward(IouRewardConfig()).score(on_image(response, answer)).value == pytest.approx(value)


def test_a_threshold_counts_pairs() -> None:
    reward = IouReward(IouRewardConfig(threshold=0.5))
    assert reward.score(on_image("[[0,0,10,5],[23,20,33,30]]", "[[0,0,10,10],[20,20,30,30]]")).value == 1.0
    assert reward.score(on_image("[[0,0,10,4],[20,20,30,30]]", "[[0,0,10,10],[20,20,30,30]]")).value == 0.5


# 1280x720 in multiples of 28 with at most 401,408 pixels: sqrt(921600/401408) = 1.5152, 844.7 and 475.2, so 840x448
@pytest.mark.parametrize(
    ("settings", "response"),
    [
        ({}, "[320, 180, 640, 360]"),
        ({"frame": "per_mille"}, "[250, 250, 500, 500]"),
        ({"frame": "unit"}, "[0.25, 0.25, 0.5, 0.5]"),
        ({"frame": "resized", "min_pixels": 3136, "max_pixels": 401408}, "[210, 112, 420, 224]"),
    ],
)
def test_a_perfect_box_scores_one_in_every_declared_frame(settings: dict[str, object], response: str) -> None:
    config = IouRewardConfig.model_validate(settings)
    assert IouReward(config).score(on_image(response, "[320, 180, 640, 360]")).value == pytest.approx(1.0)


def test_a_box_in_another_frame_than_declared_is_far_off() -> None:
    score = IouReward(IouRewardConfig()).score(on_image("[250, 250, 500, 500]", "[320, 180, 640, 360]"))
    assert (score.value or 0.0) < 0.3


def test_frames_of_both_sides_are_declared_apart() -> None:
    config = IouRewardConfig(frame="pixels", reference_frame="per_mille")
    assert IouReward(config).score(on_image("[320, 180, 640, 360]", "[250, 250, 500, 500]")).value == pytest.approx(1.0)


def test_a_resized_frame_without_limits_is_refused() -> None:
    with pytest.raises(ValidationError, match="'resized' needs min_pixels and max_pixels"):
        IouRewardConfig(frame="resized")


def test_boxes_in_two_frames_cannot_be_compared_without_the_image() -> None:
    with pytest.raises(RewardFailure, match="the sample has 0 images"):
        IouReward(IouRewardConfig(frame="per_mille")).score(item("[1, 2, 3, 4]", "[1, 2, 3, 4]"))
    assert IouReward(IouRewardConfig()).score(item("[1, 2, 3, 4]", "[1, 2, 3, 4]")).value == 1.0


def test_a_reference_without_boxes_cannot_be_compared_with() -> None:
    with pytest.raises(RewardFailure, match="the reference answer 'left' has no box"):
        IouReward(IouRewardConfig()).score(on_image("[1, 2, 3, 4]", "left"))


@pytest.mark.parametrize(
    ("answer", "response", "value"),
    [
        ("[10, 10, 20, 20]", "[15, 15]", 1.0),
        ("[10, 10, 20, 20]", "[20, 10]", 1.0),
        ("[10, 10, 20, 20]", "[21, 15]", 0.0),
        ("[10, 10, 20, 20]", '<point x="12" y="18">it</point>', 1.0),
        ("[[10,10,20,20],[30,30,40,40]]", "[35, 35], [15, 15]", 1.0),
        ("[[10,10,20,20],[30,30,40,40]]", "[15, 15], [16, 16]", 0.5),
        ("[10, 10, 20, 20]", "[15, 15] or [500, 500]", 0.5),
        ("[10, 10, 20, 20]", "[10, 10, 20, 20]", 0.0),
        ("[10, 10, 20, 20]", "", 0.0),
        ("[10, 10, 20, 20]", "[15,", 0.0),
        ("[300, 400]", "[330, 440]", 1.0),  # 50 pixels away, of 1468.6 on the diagonal: 0.034 is within 0.05
        ("[300, 400]", "[360, 480]", 0.0),  # 100 pixels: 0.068
        ("[[300, 400], [600, 100]]", "[600, 100], [300, 400]", 1.0),
    ],
)
def test_each_reference_needs_a_point_of_its_own(answer: str, response: str, value: float) -> None:
    assert PointReward(PointRewardConfig(radius=0.05)).score(on_image(response, answer)).value == value


def test_points_in_another_frame_are_compared_in_the_declared_one() -> None:
    config = PointRewardConfig(frame="per_mille")
    assert PointReward(config).score(on_image("[375, 375]", "[320, 180, 640, 360]")).value == 1.0


def test_a_reference_without_point_or_box_cannot_be_compared_with() -> None:
    with pytest.raises(RewardFailure, match="has no box or point"):
        PointReward(PointRewardConfig()).score(on_image("[1, 2]", "left"))


def test_thousands_of_boxes_are_scored_at_once() -> None:
    score = IouReward(IouRewardConfig()).score(on_image("[0,0,10,10]," * 5000, "[0, 0, 10, 10]"))
    assert score.value == pytest.approx(1 / 5000)
