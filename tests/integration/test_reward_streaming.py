"""Scoring that begins while other groups are still sampled gives what scoring afterwards gives."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from reward_mischief import rollout_group, server_pid

from mmrl.config.reward import ExactRewardConfig, MathRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner, reward
from mmrl.types import RewardResult, RolloutGroup


@reward(batch=5)
def with_neighbours(response: list[str]) -> list[dict[str, object]]:
    """A score that depends on what else is in the call, and when it was given."""
    if "raise" in response:
        raise ValueError("no good")
    return [{"score": len("".join(response)), "explanation": f"{time.time()}"} for _ in response]


def groups() -> list[RolloutGroup]:
    texts = [["a", "bb", r"\boxed{7}"], ["raise", "c", "d"], ["7", "eee", "f", "g"], [r"\boxed{8}"], ["h", "i"]]
    return [rollout_group(*each) for each in texts]


@pytest.fixture(scope="module")
def runner() -> Iterator[RewardRunner]:
    configs = [MathRewardConfig(), ExactRewardConfig(weight=0.5)]
    with RewardRunner(configs, RewardRunnerConfig(workers=2), functions=[with_neighbours]) as runner:
        yield runner


def values(scored: list[tuple[RewardResult, ...]]) -> list[list[tuple[float | None, ...]]]:
    return [[(result.total, *(part.value for part in result.parts)) for result in group] for group in scored]


def test_started_groups_score_as_all_at_once(runner: RewardRunner) -> None:
    sampled = groups()
    expected = values(runner.score(sampled))
    for group in sampled:
        runner.start(group)
    assert values(runner.score(sampled)) == expected
    for group in sampled[:3]:
        runner.start(group)
    assert values(runner.score(sampled)) == expected
    assert expected[1][0] == (None, 0.0, 0.0, None)


def test_scoring_goes_on_while_others_are_sampled(runner: RewardRunner) -> None:
    group = rollout_group(*"abcdefghij")
    runner.start(group)
    time.sleep(1.0)
    sampled_at = time.time()
    (results,) = runner.score([group])
    assert all(float(result.parts[2].explanation or "inf") < sampled_at for result in results)


def test_what_a_stage_dropped_is_forgotten_and_what_it_changed_is_scored_anew(runner: RewardRunner) -> None:
    first, second, third = (rollout_group(text * 3) for text in "abc")
    for group in (first, second, third):
        runner.start(group)
    changed = rollout_group("longer than before")
    scored = runner.score([third, changed])
    assert [result.parts[2].value for (result,) in scored] == [27.0, 27.0]  # one call: three, three, three, eighteen
    assert [result.parts[2].value for (result,) in runner.score([first])] == [3.0]


def test_groups_started_before_the_processes_died_are_scored_all_the_same(runner: RewardRunner) -> None:
    sampled = groups()
    expected = values(runner.score(sampled))
    for group in sampled[:2]:
        runner.start(group)
    os.kill(server_pid(runner), signal.SIGKILL)
    for group in sampled[2:]:
        runner.start(group)
    assert values(runner.score(sampled)) == expected


def test_outcomes_wait_for_a_trainer_that_samples_for_long_and_none_counts_as_late() -> None:
    @reward(timeout_s=0.5)
    def wordy(response: str) -> dict[str, object]:
        return {"score": 1, "explanation": "x" * 2000}

    with RewardRunner([], RewardRunnerConfig(workers=2), functions=[wordy]) as runner:
        group = rollout_group(*["a"] * 400)
        runner.start(group)
        time.sleep(1.5)
        (results,) = runner.score([group])
    assert [result.total for result in results] == [1.0] * 400
