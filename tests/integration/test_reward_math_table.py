"""The math reward on a table of pairs, beside bare math-verify."""

from __future__ import annotations

import pytest
from math_pairs import EQUAL, UNEQUAL
from math_pairs_textbook import EQUAL as TEXTBOOK_EQUAL
from math_pairs_textbook import UNEQUAL as TEXTBOOK_UNEQUAL
from math_verify import parse, verify

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards import RewardItem
from mmrl.rewards.answers.math.reward import MathReward
from mmrl.types import Message, Sample, TextPart

PAIRS = [
    *((gold, answer, 1.0) for gold, answer in EQUAL + TEXTBOOK_EQUAL),
    *((gold, answer, 0.0) for gold, answer in UNEQUAL + TEXTBOOK_UNEQUAL),
]
TOO_LARGE_FOR_SYMPY = "2003^{2002^{2001}}"


def test_the_table_has_six_hundred_pairs_each_once() -> None:
    assert len(PAIRS) >= 600
    assert len({(gold, answer) for gold, answer, _ in PAIRS}) == len(PAIRS)


def test_the_math_reward_is_right_on_ninety_nine_percent() -> None:
    reward = MathReward(MathRewardConfig())
    wrong = [pair for pair in PAIRS if _mmrl(reward, *pair[:2]) != pair[2]]
    assert len(wrong) <= 0.01 * len(PAIRS), wrong


@pytest.mark.slow
def test_bare_math_verify_is_right_on_about_four_fifths() -> None:
    right = sum(_bare(*pair[:2]) == pair[2] for pair in PAIRS)
    assert 0.7 * len(PAIRS) < right < 0.85 * len(PAIRS)


def _mmrl(reward: MathReward, gold: str, answer: str) -> float | None:
    sample = Sample("s", (Message("user", (TextPart("?"),)),), gold)
    return reward.score(RewardItem(sample, rf"So it is $\boxed{{{answer}}}$.")).value


def _bare(gold: str, answer: str) -> float:
    """math-verify on both sides in a box, its most favourable form; what it would never finish counts as unequal."""
    if TOO_LARGE_FOR_SYMPY in answer:
        return 1.0
    sides = [parse(rf"$\boxed{{{side}}}$", parsing_timeout=None) for side in (gold, answer)]
    return float(verify(*sides, timeout_seconds=None))
