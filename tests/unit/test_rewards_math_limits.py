"""A response never makes its own score in `math` missing: what is too large or too slow to compare is wrong."""

from __future__ import annotations

import time

import pytest
from rewards_builders import item

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards.answers.math.limits import OutOfTimeError, clock, why_too_large
from mmrl.rewards.answers.math.reward import MathReward
from mmrl.rewards.base import RewardFailure

MATH = MathReward(MathRewardConfig())


@pytest.mark.parametrize(
    "answer",
    [
        "10^{10^{10}}", "10**10**10", "10^{(10^{10})}", "2^{99999999999}", "10^{-10^{10}}", r"(\frac12)^{1000000000}",
        "1000000!", "(10!)!", "10!!!", r"\binom{1000000}{500000}", "+".join(["1"] * 2000),
        "(" * 5000 + "1" + ")" * 5000, "7" * 200_000, "a" * 200_000, "{" * 2000 + "7" + "}" * 2000,
    ],
)  # fmt: skip
def test_an_answer_that_is_too_large_is_wrong_at_once(answer: str) -> None:
    for response in (rf"\boxed{{{answer}}}", answer, f"The answer is {answer}"):
        began = time.process_time()
        score = MATH.score(item(response, "7/3"))
        assert score.value == 0.0
        assert score.explanation
        assert time.process_time() - began < 1.0


def test_an_answer_that_is_slow_to_compare_is_wrong_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def forever(gold: object, answer: object) -> bool:
        while True:
            try:
                sum(range(1000))
            except Exception:
                continue

    monkeypatch.setattr("mmrl.rewards.answers.math.compare.answers_equal", forever)
    score = MathReward(MathRewardConfig(timeout_s=0.25)).score(item(r"\boxed{8}", "7"))
    assert score.value == 0.0
    assert "took more than 0.1 s of processor time" in (score.explanation or "")


def test_a_reference_that_is_slow_to_read_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def forever(gold: object) -> bool:
        while True:
            sum(range(1000))

    monkeypatch.setattr("mmrl.rewards.answers.math.compare.can_be_compared", forever)
    with pytest.raises(RewardFailure, match=r"the reference answer '7' cannot be worked out within 0\.1 s"):
        MathReward(MathRewardConfig(timeout_s=0.25)).score(item(r"\boxed{8}", "7"))


def test_a_large_reference_still_equals_itself() -> None:
    assert MATH.score(item(r"\boxed{10^{10^{10}}}", "10^{10^{10}}")).value == 1.0
    assert MATH.score(item(r"\boxed{2024!}", "2024!")).value == 1.0


@pytest.mark.parametrize("answer", ["20!", "2^{100}", r"\binom{100}{50}", "1+2+3", "((((x))))", "x^{2024}"])
def test_ordinary_sizes_are_worked_out(answer: str) -> None:
    assert why_too_large(answer) is None


def test_the_clock_leaves_no_alarm_behind() -> None:
    with pytest.raises(OutOfTimeError), clock(0.01):
        work(seconds=1)
    work(seconds=0.1)


def test_waiting_for_the_processor_uses_up_no_time() -> None:
    """As where other programs keep the machine busy."""
    rang = False
    try:
        with clock(0.05):
            time.sleep(0.2)
    except OutOfTimeError:
        rang = True
    assert not rang


def work(*, seconds: float) -> None:
    """Uses so much processor time."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))
