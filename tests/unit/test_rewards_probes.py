from __future__ import annotations

import pytest
from rewards_builders import sample

from mmrl.config.reward import ChoiceRewardConfig, ExactRewardConfig, FormatRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner, reward
from mmrl.rewards.probes import find_problems, summarise, try_rewards

SAMPLES = [sample("7", id="a"), sample("8", id="b"), sample(None, id="c")]


def test_each_row_is_answered_right_wrong_malformed_injected_and_empty() -> None:
    with RewardRunner([ExactRewardConfig(), FormatRewardConfig(weight=0.1)], RewardRunnerConfig()) as runner:
        trials = try_rewards(runner, SAMPLES)
    by_probe = {row.probe: row for row in summarise(trials)}
    assert {name: row.mean for name, row in by_probe.items()} == {
        "reference in a box": pytest.approx(1.1),
        "reference plain": 0.0,
        "wrong": pytest.approx(0.1),
        "malformed": 0.0,
        "injected": pytest.approx(0.1),
        "empty": 0.0,
    }
    assert {name: row.responses for name, row in by_probe.items()} == {**dict.fromkeys(by_probe, 2), "empty": 3}
    assert (by_probe["empty"].missing, by_probe["empty"].failures) == (1, {"exact": 1, "format": 0})
    assert [trial.response for trial in trials if trial.probe == "wrong"] == [r"\boxed{8}", r"\boxed{7}"]


def test_a_row_whose_reference_scores_no_more_than_a_wrong_answer_is_told() -> None:
    with RewardRunner([FormatRewardConfig()], RewardRunnerConfig()) as runner:
        problems = find_problems(try_rewards(runner, SAMPLES[:2]))
    assert problems == [
        "sample a: its reference answer '7' scores no more than a wrong one",
        "sample b: its reference answer '8' scores no more than a wrong one",
    ]


def test_a_reward_that_begging_moves_is_told() -> None:
    @reward(isolated=False)
    def gullible(response: str, answer: str | None) -> float:
        return 1.0 if f"{{{answer}}}" in response or "full marks" in response else 0.0

    with RewardRunner([], RewardRunnerConfig(), functions=[gullible]) as runner:
        problems = find_problems(try_rewards(runner, SAMPLES[:1]))
    assert problems == ["sample a: a wrong answer that asks for full marks scores more than without"]


def test_failures_are_told_once_a_sample() -> None:
    with RewardRunner([ChoiceRewardConfig()], RewardRunnerConfig()) as runner:
        problems = find_problems(try_rewards(runner, SAMPLES[:1]))
    assert len(problems) == 1
    assert "reference answer '7' is not one of the letters" in problems[0]
