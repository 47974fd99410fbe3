"""The rewards for form: format, length, keyword."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError
from rewards_builders import item

from mmrl.config.reward import FormatRewardConfig, KeywordRewardConfig, LengthRewardConfig
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.form.format import FormatReward
from mmrl.rewards.form.keyword import KeywordReward
from mmrl.rewards.form.length import LengthReward

THINK = r"(?s)<think>.*</think>\s*<answer>.*</answer>"


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("so\n\\boxed{7}\n", 1.0),
        (r"\boxed{7}", 1.0),
        (r"\boxed{}", 0.0),
        (r"\boxed{\frac{1}{2}", 0.0),
        (r"\boxed{\{\frac{1}{2}\}}", 1.0),
        (r"\boxed 7", 0.0),
        ("7", 0.0),
        ("", 0.0),
    ],
)
def test_the_default_format_asks_for_a_box(response: str, value: float) -> None:
    assert FormatReward(FormatRewardConfig()).score(item(response)).value == value


def test_a_pattern_is_told_as_it_stands_in_the_config() -> None:
    reward = FormatReward(FormatRewardConfig(pattern=r"\\boxed\{\d\}"))
    assert reward.score(item("7")).explanation == r"does not match the pattern \\boxed\{\d\}"


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("<think>a\nb</think>\n<answer>7</answer>", 1.0),
        ("first <think>a</think><answer>7</answer>", 0.0),
        ("<think>a</think><answer>7", 0.0),
    ],
)
def test_the_whole_response_must_match_the_pattern(response: str, value: float) -> None:
    assert FormatReward(FormatRewardConfig(pattern=THINK)).score(item(response)).value == value


def test_a_pattern_that_takes_for_ever_fails_in_time() -> None:
    reward = FormatReward(FormatRewardConfig(pattern="(a|aa)+", timeout_s=0.2))
    began = time.monotonic()
    with pytest.raises(RewardFailure, match=r"took longer than 0.2 s"):
        reward.score(item("a" * 60 + "b"))
    assert time.monotonic() - began < 5


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValidationError, match="is not a regular expression"):
        FormatRewardConfig(pattern="(")


@pytest.mark.parametrize(("num_tokens", "value"), [(1, 1.0), (10, 1.0), (15, 0.75), (20, 0.5), (30, 0.0), (99, 0.0)])
def test_the_length_bonus_falls_linearly(num_tokens: int, value: float) -> None:
    reward = LengthReward(LengthRewardConfig(free_tokens=10, max_tokens=30))
    assert reward.score(item("text", num_tokens=num_tokens)).value == pytest.approx(value)


def test_truncated_response_gets_no_bonus() -> None:
    reward = LengthReward(LengthRewardConfig(max_tokens=30))
    assert reward.score(item("text", num_tokens=3, finish_reason="length")).value == 0.0


def test_empty_response_gets_no_bonus() -> None:
    assert LengthReward(LengthRewardConfig(max_tokens=30)).score(item("", num_tokens=1)).value == 0.0


def test_length_limits_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"free_tokens \(30\) must be below max_tokens \(30\)"):
        LengthRewardConfig(free_tokens=30, max_tokens=30)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("I am not sure.", -1.0),
        ("NOT  SURE, and not\nsure again", -2.0),
        ("As an AI, I am not sure, not sure", -3.0),
        ("as an ai as an ai as an ai as an ai", -3.0),
        ("as an aim", 0.0),
        ("surely", 0.0),
        ("", 0.0),
    ],
)
def test_each_keyword_costs_one_down_to_the_limit(response: str, value: float) -> None:
    config = KeywordRewardConfig(keywords=("not sure", "as an AI"), max_penalty=3.0)
    assert KeywordReward(config).score(item(response)).value == value


def test_keywords_heed_case_where_it_is_asked_for() -> None:
    reward = KeywordReward(KeywordRewardConfig(keywords=("Wait",), ignore_case=False))
    assert reward.score(item("wait")).value == 0.0
    assert reward.score(item("Wait")).value == -1.0


def test_keywords_without_letters_at_their_ends_match_anywhere() -> None:
    reward = KeywordReward(KeywordRewardConfig(keywords=("!!",)))
    score = reward.score(item("Great!!"))
    assert (score.value, score.explanation) == (-1.0, "found '!!' x1")


def test_an_empty_keyword_is_refused() -> None:
    with pytest.raises(ValidationError, match="a keyword is empty"):
        KeywordRewardConfig(keywords=("a", " "))
