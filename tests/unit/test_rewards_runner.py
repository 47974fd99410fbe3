"""The runner with rewards that run in the calling process; those with processes are among the integration tests."""

from __future__ import annotations

import logging
import os
import threading

import pytest
from rewards_builders import group, sample

from mmrl.config.reward import ExactRewardConfig, FormatRewardConfig, KeywordRewardConfig, LengthRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.errors import ConfigError, RunFailedError
from mmrl.rewards import RewardRunner, reward

CONFIG = RewardRunnerConfig()


def test_parts_are_kept_and_their_weighted_sum_is_the_total() -> None:
    configs = [ExactRewardConfig(), FormatRewardConfig(weight=0.1, name="boxed"), LengthRewardConfig(max_tokens=6)]
    with RewardRunner(configs, CONFIG) as runner:
        ((right, wrong, empty),) = runner.score([group(r"\boxed{7}", r"\boxed{8}", "")])
    assert [part.name for part in right.parts] == ["exact", "boxed", "length"]
    assert [part.value for part in right.parts] == [1.0, 1.0, 0.5]
    assert [part.weight for part in right.parts] == [1.0, 0.1, 1.0]
    assert right.total == pytest.approx(1.6)
    assert wrong.total == pytest.approx(0.6)
    assert empty.total == 0.0
    assert all(part.ms >= 0 and part.error is None for part in right.parts)
    assert wrong.parts[0].extracted == "8"


def test_results_come_by_group_in_the_order_of_the_rollouts() -> None:
    groups = [group(r"\boxed{1}", r"\boxed{2}", answer="2"), group(r"\boxed{3}", answer="3", id="b"), group(id="c")]
    with RewardRunner([ExactRewardConfig()], CONFIG) as runner:
        results = runner.score(groups)
    assert [[result.total for result in row] for row in results] == [[0.0, 1.0], [1.0], []]


def test_without_groups_there_are_no_results() -> None:
    assert RewardRunner([ExactRewardConfig()], CONFIG).score([]) == []


def test_a_failed_part_makes_the_total_missing_and_names_sample_and_response() -> None:
    groups = [group(r"\boxed{7}", r"\boxed{7}"), group(r"\boxed{7}", answer=None, id="no-answer")]
    with RewardRunner([ExactRewardConfig()], CONFIG) as runner:
        results = runner.score(groups)
    assert [result.total for result in results[0]] == [1.0, 1.0]
    failed = results[1][0]
    assert failed.total is None
    assert failed.parts[0].value is None
    assert (failed.parts[0].error or "").startswith("reward 'exact' on sample no-answer, response 0: the sample has no")


def test_a_part_of_weight_zero_is_only_watched() -> None:
    configs = [KeywordRewardConfig(keywords=("wait",)), ExactRewardConfig(weight=0.0)]
    with RewardRunner(configs, CONFIG) as runner:
        (result,) = runner.score_texts([(sample(None), "wait")])
    assert result.total == -1.0
    assert result.parts[1].error is not None


def test_too_many_failures_of_one_reward_stop_the_run_with_the_first_causes(caplog: pytest.LogCaptureFixture) -> None:
    groups = [group(r"\boxed{7}", answer=None, id=f"s{number}") for number in range(3)] + [group(r"\boxed{7}")]
    runner = RewardRunner([FormatRewardConfig(), ExactRewardConfig()], RewardRunnerConfig(max_failure_rate=0.5))
    with pytest.raises(
        RunFailedError, match=r"reward 'exact' failed on 3 of 4 responses \(75%.* allows 50%\)"
    ) as caught:
        runner.score(groups)
    assert "sample s0, response 0: the sample has no reference answer" in str(caught.value)


def test_failures_up_to_the_ceiling_are_logged_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    runner = RewardRunner([ExactRewardConfig()], RewardRunnerConfig(max_failure_rate=0.5))
    with caplog.at_level(logging.WARNING):
        runner.score([group(r"\boxed{7}", answer=None, id="bad"), group(r"\boxed{7}")])
    assert "reward 'exact' on sample bad, response 0" in caplog.text


def test_texts_can_be_tried_out_whatever_share_fails() -> None:
    with RewardRunner([ExactRewardConfig(), LengthRewardConfig(max_tokens=10)], CONFIG) as runner:
        results = runner.score_texts([(sample(None), "x"), (sample("7"), r"\boxed{7}")])
    assert [result.total for result in results] == [None, pytest.approx(1.0 + 0.7)]


def test_two_rewards_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="two rewards are named 'exact'"):
        RewardRunner([ExactRewardConfig(), ExactRewardConfig(boxed=False)], CONFIG)


def test_a_function_marked_so_runs_in_the_calling_process() -> None:
    @reward(weight=2.0, name="mine", isolated=False)
    def own(response: str) -> dict[str, object]:
        return {"score": len(response), "explanation": str(os.getpid())}

    with RewardRunner([], CONFIG, functions=[own]) as runner:
        (result,) = runner.score_texts([(sample(), "abc")])
    assert (result.total, result.parts[0].name, result.parts[0].explanation) == (6.0, "mine", str(os.getpid()))


def test_a_function_that_cannot_be_sent_runs_in_the_calling_process_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lock = threading.Lock()

    def locked(response: str) -> float:
        with lock:
            if response == "bad":
                raise ValueError("no")
            return 1.0

    with caplog.at_level(logging.WARNING), RewardRunner([], CONFIG, functions=[locked]) as runner:
        good, bad = runner.score_texts([(sample(), "good"), (sample(), "bad")])
    assert "reward 'locked' cannot be sent to another process" in caplog.text
    assert good.total == 1.0
    assert "it raised ValueError: no (test_rewards_runner.py:" in (bad.parts[0].error or "")


def test_a_function_that_needs_an_unknown_argument_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="reward function 'wrong': nothing gives its argument 'model'"):
        RewardRunner([], CONFIG, functions=[wrong])


def wrong(model: object) -> float:
    return 1.0
