"""The reward `caption`."""

from __future__ import annotations

from typing import Any

import pytest
from rewards_builders import sample

from mmrl.config.reward import CaptionRewardConfig
from mmrl.rewards.base import RewardFailure, RewardItem, Score
from mmrl.rewards.vision.caption import CaptionReward

CAT = "a black cat sits on the mat"


def score(response: str, answer: str | None = CAT, meta: dict[str, Any] | None = None, **settings: Any) -> Score:
    item = RewardItem(sample(answer, **(meta or {})), response)
    return CaptionReward(CaptionRewardConfig(**settings)).score(item)


@pytest.mark.parametrize("measure", ["chrf", "bleu", "rouge_l"])
def test_right_wrong_and_empty_captions(measure: Any) -> None:
    right, near = score(CAT, measure=measure), score("a black cat sat on a mat", measure=measure)
    wrong, empty = score("twelve rockets flew", measure=measure), score("  ", measure=measure)
    assert right.value == pytest.approx(1.0)
    assert (right.extracted, right.explanation) == (CAT, f"{measure} 1.000 against the reference")
    assert near.value is not None
    assert wrong.value is not None
    assert 0.1 > wrong.value < near.value < 1.0
    assert (empty.value, empty.extracted, empty.explanation) == (0.0, None, "the response is empty")


def test_rouge_l_is_worked_by_hand() -> None:
    """Common sequence 'the cat mat' of 3, 4 words given and 6 wanted: 2 * 3 / 10."""
    assert score("the cat, mat here", "The cat sat on the mat", measure="rouge_l").value == pytest.approx(0.6)


def test_bleu_is_worked_by_hand() -> None:
    """'a b c d e' against 'a b c d f': precisions 4/5, 3/4, 2/3 and 1/2, no brevity penalty."""
    expected = (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert score("a b c d e", "a b c d f", measure="bleu").value == pytest.approx(expected)


def test_chrf_of_two_letters_is_worked_by_hand() -> None:
    """'ab' against 'ac': one of two letters, none of one pair; F is 1/2 for letters and 0 for pairs, their mean 1/4."""
    assert score("ab", "ac").value == pytest.approx(0.25)


@pytest.mark.parametrize("measure", ["chrf", "bleu", "rouge_l"])
def test_several_references_count_by_the_best_of_them(measure: Any) -> None:
    several = {"references": ["two dogs run in the park", CAT]}
    assert score(CAT, None, several, measure=measure).value == pytest.approx(1.0)
    assert score(CAT, f'["two dogs run", "{CAT}"]', measure=measure).value == pytest.approx(1.0)
    assert score(CAT, "other", {"captions": [CAT]}, measure=measure, references="captions").value == pytest.approx(1.0)
    assert score(CAT, None, several).explanation == "chrf 1.000 against 2 references"


@pytest.mark.parametrize("measure", ["chrf", "bleu", "rouge_l"])
def test_chinese_is_compared_by_characters(measure: Any) -> None:
    half = score("一只黑猫睡在床下面", "一只黑猫坐在垫子上", measure=measure).value
    assert half is not None
    assert 0.1 < half < 0.9
    assert score("一只黑猫坐在垫子上。", "一只黑猫坐在垫子上", measure="rouge_l").value == 1.0


def test_case_counts_where_asked_for_and_width_never() -> None:
    assert score("A BLACK CAT", "a black cat").value == 1.0
    assert score("A BLACK CAT", "a black cat", ignore_case=False).value == 0.0
    assert score("ａ　ｂｌａｃｋ  cat", "a black cat").value == 1.0


def test_the_caption_is_read_from_a_box_where_asked_for() -> None:
    assert score(rf"I see this: \boxed{{{CAT}}}", boxed=True).value == 1.0
    assert score(rf"\boxed{{{CAT}", boxed=True).explanation == r"no \boxed{...} with a caption"


@pytest.mark.parametrize("references", [[], [""], [3], 3, {"a": 1}])
def test_references_that_are_no_captions_fail(references: Any) -> None:
    with pytest.raises(RewardFailure, match="reference"):
        score(CAT, None, {"references": references})


def test_a_sample_without_any_reference_fails() -> None:
    with pytest.raises(RewardFailure, match="no reference answer"):
        score(CAT, None)
