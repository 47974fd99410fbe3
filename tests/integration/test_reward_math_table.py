"""The math reward on a table of pairs, beside bare math-verify."""

from __future__ import annotations

from math_pairs import EQUAL, UNEQUAL
from math_verify import parse, verify

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards import RewardItem
from mmrl.rewards.math import MathReward
from mmrl.types import Message, Sample, TextPart

PAIRS = [(gold, answer, 1.0) for gold, answer in EQUAL] + [(gold, answer, 0.0) for gold, answer in UNEQUAL]
TOO_LARGE_FOR_SYMPY = "2003^{2002^{2001}}"


def test_the_table_has_three_hundred_pairs_each_once() -> None:
    assert len(PAIRS) >= 300
    assert len({(gold, answer) for gold, answer, _ in PAIRS}) == len(PAIRS)


def test_the_math_reward_is_right_on_ninety_nine_percent_and_bare_math_verify_on_fewer() -> None:
    reward = MathReward(MathRewardConfig())
    wrong = [pair for pair in PAIRS if _mmrl(reward, *pair[:2]) != pair[2]]
    wrong_bare = [pair for pair in PAIRS if _bare(*pair[:2]) != pair[2]]
    assert len(wrong) <= 0.01 * len(PAIRS), wrong
    assert len(wrong_bare) > 0.1 * len(PAIRS)


def _mmrl(reward: MathReward, gold: str, answer: str) -> float | None:
    sample = Sample("s", (Message("user", (TextPart("?"),)),), gold)
    return reward.score(RewardItem(sample, rf"So it is $\boxed{{{answer}}}$.")).value


def _bare(gold: str, answer: str) -> float:
    """math-verify on both sides in a box, its most favourable form; what it would never finish counts as unequal."""
    if TOO_LARGE_FOR_SYMPY in answer:
        return 1.0
    sides = [parse(rf"$\boxed{{{side}}}$", parsing_timeout=None) for side in (gold, answer)]
    return float(verify(*sides, timeout_seconds=None))
