"""The rewards tags, repetition, language and overlong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError
from rewards_builders import item

from mmrl.config.reward import LanguageRewardConfig, OverlongRewardConfig, RepetitionRewardConfig, TagsRewardConfig
from mmrl.rewards.base import RewardFailure, RewardItem
from mmrl.rewards.form.language import LanguageReward
from mmrl.rewards.form.overlong import OverlongReward
from mmrl.rewards.form.repetition import RepetitionReward
from mmrl.rewards.form.tags import TagsReward
from mmrl.types import Message, TextPart


@pytest.mark.parametrize(
    ("response", "value", "partial", "extracted"),
    [
        ("<think>so\nso</think>\n<answer>7</answer>\n", 1.0, 1.0, "7"),
        ("<think>so</think><answer> 7 </answer>", 1.0, 1.0, "7"),
        ("Well, <think>so</think><answer>7</answer>", 0.0, 1.0, "7"),
        ("<answer>7</answer><think>so</think>", 0.0, 1.0, "7"),
        ("<think>a<answer>7</answer></think>", 0.0, 1.0, "7"),
        ("<think>so</think><answer>7</answer><answer>8</answer>", 0.0, 0.5, "8"),
        ("<think>so</think><answer>7", 0.0, 0.5, None),
        ("<think></think><answer>7</answer>", 0.0, 0.5, "7"),
        ("<think>so</think>", 0.0, 0.5, None),
        ("</answer>7<answer>", 0.0, 0.0, None),
        ("7", 0.0, 0.0, None),
        ("", 0.0, 0.0, None),
    ],
)
def test_tags_must_stand_once_filled_and_in_order(
    response: str, value: float, partial: float, extracted: str | None
) -> None:
    score = TagsReward(TagsRewardConfig()).score(item(response))
    assert (score.value, score.extracted) == (value, extracted)
    assert TagsReward(TagsRewardConfig(partial=True)).score(item(response)).value == partial


def test_faults_of_tags_are_explained() -> None:
    score = TagsReward(TagsRewardConfig()).score(item("<think>so</think><answer>7"))
    assert score.explanation == "<answer> is opened 1 and closed 0 times, not once each"


@pytest.mark.parametrize("tags", [("<think>",), ("a", "a"), ()])
def test_tags_that_cannot_be_are_refused(tags: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        TagsRewardConfig(tags=tags)


@pytest.mark.parametrize(
    ("response", "ngram", "value"),
    [
        ("a b c d e", 2, 0.0),
        ("a b a b a b", 2, -3 / 4),  # ab ba ab ba ab: 5 sequences, 2 different, so (5 - 2) / (5 - 1)
        ("a a a a a", 2, -1.0),
        ("A a, a", 1, -2 / 3),  # a a , a: 4 words, 2 different
        ("好好好好", 2, -1.0),
        ("one two", 2, 0.0),
        ("", 2, 0.0),
    ],
)
def test_repetition_costs_its_share(response: str, ngram: int, value: float) -> None:
    assert RepetitionReward(RepetitionRewardConfig(ngram=ngram)).score(item(response)).value == pytest.approx(value)


def test_the_repetition_penalty_is_scaled_and_explained() -> None:
    score = RepetitionReward(RepetitionRewardConfig(ngram=2, max_penalty=0.5)).score(item("a b a b a b"))
    assert score.value == pytest.approx(-0.375)
    assert score.explanation == "75% repeated, most often 'a b' x3"


@pytest.mark.parametrize(
    ("language", "response", "value"),
    [
        ("en", "It is seven.", 1.0),
        ("en", "它是七。", 0.0),
        ("zh", "它是七。", 1.0),
        ("zh", r"答案是 $x + y$，所以 \boxed{yes}。", 1.0),
        ("zh", "所以 `return x` 是对的", 1.0),
        ("zh", "答案 ab", 0.5),
        ("ja", "それは七です", 1.0),
        ("ko", "일곱", 1.0),
        ("ru", "семь seven", 4 / 9),
        ("en", "Ｓｅｖｅｎ", 1.0),
        ("en", "7", 1.0),
        ("en", "", 0.0),
        ("en", "   ", 0.0),
    ],
)
def test_the_share_of_letters_in_the_language_is_paid(language: str, response: str, value: float) -> None:
    config = LanguageRewardConfig.model_validate({"language": language})
    assert LanguageReward(config).score(item(response)).value == pytest.approx(value)


def test_a_threshold_makes_the_share_one_or_zero() -> None:
    reward = LanguageReward(LanguageRewardConfig(language="zh", threshold=0.6))
    assert reward.score(item("答案 ab")).value == 0.0
    assert reward.score(item("答案是 ab")).value == 1.0


@pytest.mark.parametrize(
    ("prompt", "response", "value"),
    [
        ("图里有几只猫？", "三只", 1.0),
        ("图里有几只猫？", "three", 0.0),
        ("How many?", "three", 1.0),
        ("何匹いますか", "三匹です", 1.0),
    ],
)
def test_the_language_of_the_prompt_is_followed(prompt: str, response: str, value: float) -> None:
    assert LanguageReward(LanguageRewardConfig()).score(asked(prompt, response)).value == value


def test_a_prompt_without_letters_has_no_language() -> None:
    with pytest.raises(RewardFailure, match="the prompt has no letters"):
        LanguageReward(LanguageRewardConfig()).score(asked("1 + 1 = ?", "two"))


def asked(prompt: str, response: str) -> RewardItem:
    base = item(response)
    return replace(base, sample=replace(base.sample, messages=(Message("user", (TextPart(prompt),)),)))


@pytest.mark.parametrize(
    ("num_tokens", "value"), [(0, 0.0), (60, 0.0), (80, 0.0), (85, -0.125), (90, -0.25), (100, -0.5), (120, -0.5)]
)
def test_the_overlong_penalty_grows_over_the_buffer(num_tokens: int, value: float) -> None:
    reward = OverlongReward(OverlongRewardConfig(limit=100, buffer=20, penalty=0.5))
    assert reward.score(item("x", num_tokens=num_tokens)).value == pytest.approx(value)


def test_an_overlong_buffer_above_its_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"buffer \(30\) must not be above limit \(20\)"):
        OverlongRewardConfig(limit=20, buffer=30)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("```text\n答案是七\n```", 0.0),
        ("```\n答案是七\n```", 0.0),
        ("```python\nprint(7)\n```", 1.0),
        ("<think>答案是七</think>", 0.0),
        ("The answer is seven\n```\n七\n```", 1.0),
        ("<答案是七>", 0.0),
    ],
)
def test_text_in_fences_and_tags_hides_no_language(response: str, value: float) -> None:
    assert LanguageReward(LanguageRewardConfig(language="en")).score(item(response)).value == value
