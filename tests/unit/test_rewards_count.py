from __future__ import annotations

import pytest
from rewards_builders import item

from mmrl.config.reward import CountRewardConfig
from mmrl.rewards.answers.number_words import numbers_in_words
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.vision.count import CountReward, read_count


@pytest.mark.parametrize(
    ("response", "count"),
    [
        (r"\boxed{3}", 3),
        (r"\boxed{three}", 3),
        (r"\boxed{\text{Three cats}}", 3),
        (r"I see 5 dogs. \boxed{2} no, \boxed{3}", 3),
        (r"\boxed{３}", 3),
        ("The answer is 3 out of 5.", 3),
        ("Answer: three", 3),
        ("3", 3),
        ("There are 3 cats.", 3),
        ("Two on the left and one on the right makes 3", 3),
        ("There are three cats, including the one on the left.", 3),
        ("I count twenty-one birds", 21),
        ("a hundred and five people", 105),
        ("There are no cats.", 0),
        ("None", 0),
        ("图里有三只猫。", 3),
        ("一共有23个", 23),
        ("二十三个", 23),
        ("两只", 2),
        ("答案：１２", 12),
        ("1,204", 1204),
        ("2.5", 2.5),
        ("-1", -1),
        ("several", None),
        ("", None),
        (r"\boxed{}", None),
        ("A4 paper, mp3", None),
        (r"\boxed{many}, about 3", None),
    ],
)
def test_the_count_is_read(response: str, count: float | None) -> None:
    assert read_count(response) == count


@pytest.mark.parametrize(
    ("response", "answer", "value", "partial"),
    [
        ("4", "4", 1.0, 1.0),
        ("four", "4", 1.0, 1.0),
        ("3", "4", 0.0, 0.75),
        ("5", "4", 0.0, 0.75),
        ("8", "4", 0.0, 0.0),
        ("80", "4", 0.0, 0.0),
        ("1", "0", 0.0, 0.0),
        ("none", "0", 1.0, 1.0),
        ("3.5", "4", 0.0, 0.875),
        ("", "4", 0.0, 0.0),
        ("three", "three", 1.0, 1.0),
    ],
)
def test_a_right_count_scores_one_and_a_near_one_a_part_where_asked_for(
    response: str, answer: str, value: float, partial: float
) -> None:
    assert CountReward(CountRewardConfig()).score(item(response, answer)).value == value
    assert CountReward(CountRewardConfig(partial=True)).score(item(response, answer)).value == pytest.approx(partial)


@pytest.mark.parametrize("answer", ["many", "3.5", "-2", None])
def test_a_reference_that_is_no_count_cannot_be_compared_with(answer: str | None) -> None:
    with pytest.raises(RewardFailure, match="reference answer"):
        CountReward(CountRewardConfig()).score(item("3", answer))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("seven", [7]),
        ("Nineteen or ninety", [19, 90]),
        ("two hundred", [200]),
        ("nine hundred ninety nine", [999]),
        ("sixty  six", [66]),
        ("stone, tenth, sevens", []),
        ("十", [10]),
        ("一百零五", [105]),
        ("三百二十", [320]),
        ("十二三", []),
    ],
)
def test_numbers_in_words_are_read(text: str, numbers: list[int]) -> None:
    assert numbers_in_words(text) == numbers


def test_a_number_near_a_count_is_not_that_count() -> None:
    score = CountReward(CountRewardConfig()).score(item("3.0000000000000001", "3"))
    assert (score.value, score.explanation) == (0.0, "3.0000000000000001 is not 3")
    assert CountReward(CountRewardConfig()).score(item("3.0", "3")).value == 1.0
