from __future__ import annotations

import pytest
from rewards_builders import item

from mmrl.config.reward import ExactRewardConfig
from mmrl.rewards.answers.exact import ExactReward
from mmrl.rewards.base import RewardFailure


@pytest.mark.parametrize(
    ("answer", "response", "value", "extracted"),
    [
        ("7", r"It is \boxed{7}", 1.0, "7"),
        ("7", r"\boxed{7} … \boxed{8}", 0.0, "8"),
        ("7", r"\boxed{ 7 }.", 1.0, "7"),
        ("7", r"\boxed{７}", 1.0, "7"),
        ("7", r"\boxed{\text{7}}", 1.0, r"\text{7}"),
        ("odd", r"\boxed{Odd}", 1.0, "Odd"),
        ("7", r"\boxed{07}", 0.0, "07"),
        ("7", "7", 0.0, None),
        ("7", "", 0.0, None),
        ("7", r"\boxed{}", 0.0, None),
        ("7", r"\boxed{7", 0.0, None),
        ("New York", "\\boxed{new\n  york}", 1.0, "new\n  york"),
    ],
)
def test_the_last_box_must_equal_the_reference(answer: str, response: str, value: float, extracted: str | None) -> None:
    score = ExactReward(ExactRewardConfig()).score(item(response, answer))
    assert (score.value, score.extracted) == (value, extracted)


def test_the_explanation_shows_both_sides() -> None:
    score = ExactReward(ExactRewardConfig()).score(item(r"\boxed{8}", "7"))
    assert score.explanation == "'8' is not the reference '7'"


@pytest.mark.parametrize(("response", "value"), [("cat", 1.0), (" cat. ", 1.0), ("a cat", 0.0), ("", 0.0)])
def test_without_boxes_the_whole_response_is_the_answer(response: str, value: float) -> None:
    assert ExactReward(ExactRewardConfig(boxed=False)).score(item(response, "cat")).value == value


def test_case_counts_where_it_is_asked_for() -> None:
    reward = ExactReward(ExactRewardConfig(ignore_case=False))
    assert reward.score(item(r"\boxed{Cat}", "cat")).value == 0.0
    assert reward.score(item(r"\boxed{cat}", "cat")).value == 1.0


@pytest.mark.parametrize("answer", [None, "", "  "])
def test_a_sample_without_answer_cannot_be_scored(answer: str | None) -> None:
    with pytest.raises(RewardFailure, match="no reference answer"):
        ExactReward(ExactRewardConfig()).score(item(r"\boxed{7}", answer))
