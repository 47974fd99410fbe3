from __future__ import annotations

import pytest
from pydantic import ValidationError
from rewards_builders import item

from mmrl.config.reward import ChoiceRewardConfig
from mmrl.rewards.answers.choice import ChoiceReward, find_choice
from mmrl.rewards.base import RewardFailure


@pytest.mark.parametrize(
    ("answer", "response", "chosen"),
    [
        ("E", r"\boxed{E}", "E"),
        ("E", r"\boxed{\text{E}}", "E"),
        ("E", r"\boxed{E: polygenic inheritance}", "E"),
        ("E", r"\boxed{\text{E. polygenic}}", "E"),
        ("E", r"\boxed{(E) polygenic}", "E"),
        ("D", "\\boxed{\\langle H\\rangle \\ll \\Delta E}\nso D fits.\nAnswer: D", "D"),
        ("A", "（Ａ）。", "A"),
        ("a", "Answer: **A**", "A"),
        ("(C)", "The correct answer is (C) because it fits.", "C"),
        ("B", "Option B", "B"),
        ("B", "选项Ｂ", "B"),
        ("C", "答案是C。", "C"),
        ("B", "Some reasoning.\nB", "B"),
        ("B", r"\boxed{b}", "B"),
        ("D", "The answer is D the mitochondria", "D"),
        ("A", "The answer is A because a square has four sides.", "A"),
        ("C", r"\boxed{A} wait, \boxed{C}", "C"),
        ("C. the third", r"\boxed{C}", "C"),
    ],
)
def test_the_chosen_letter_is_found(answer: str, response: str, chosen: str) -> None:
    score = ChoiceReward(ChoiceRewardConfig()).score(item(response, answer))
    assert (score.value, score.extracted) == (1.0, chosen)


@pytest.mark.parametrize(
    ("response", "chosen"),
    [
        (r"\boxed{B}", "B"),
        ("Answer: D", "D"),
        ("", None),
        ("The answer is A polygon with four sides", None),
        ("I think so.", None),
        (r"\boxed{A, B, C, D}", None),
        (r"\boxed{A or B}", None),
        (r"\boxed{x = A + 3}", None),
        (r"\boxed{}", None),
        ("Apples", None),
        ("Every letter from A to D is possible.", None),
    ],
)
def test_a_wrong_missing_or_ambiguous_choice_scores_nothing(response: str, chosen: str | None) -> None:
    score = ChoiceReward(ChoiceRewardConfig()).score(item(response, "A"))
    assert (score.value, score.extracted) == (0.0, chosen)


def test_only_the_given_letters_can_be_chosen() -> None:
    reward = ChoiceReward(ChoiceRewardConfig(choices="AB"))
    assert reward.score(item(r"\boxed{C}", "A")).extracted is None
    with pytest.raises(RewardFailure, match="'C' is not one of the letters AB"):
        reward.score(item(r"\boxed{A}", "C"))


def test_choices_that_are_no_letters_are_refused() -> None:
    with pytest.raises(ValidationError, match="such as ABCD"):
        ChoiceRewardConfig(choices="A,B")


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("Option C is correct.", "C"),
        ("Look at the cat.\nSo option C is the correct one.", "C"),
        ("(B) 42", "B"),
        ("**(B)** 42", "B"),
        ("(A) 41 (B) 42", None),
        ("Option C is wrong.", None),
        ("First (B) 42\nthen more", None),
    ],
)
def test_a_choice_may_be_said_in_a_sentence_or_copied_as_a_line(response: str, letter: str | None) -> None:
    assert find_choice(response, "ABCD") == letter
