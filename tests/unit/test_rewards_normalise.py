"""Parts of a reward brought to one scale; numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter
from rewards_builders import rollout, sample

from mmrl.config import RunConfig
from mmrl.config.reward import RewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.errors import ConfigError
from mmrl.rewards import RewardRunner
from mmrl.rewards.combine.normalise import Normaliser
from mmrl.types import RewardPart, RewardResult, RolloutGroup


def config(**settings: Any) -> Any:
    return TypeAdapter(RewardConfig).validate_python(settings)


def group(*responses: tuple[str, int]) -> RolloutGroup:
    """Responses and their lengths in tokens."""
    return RolloutGroup(sample(), tuple(rollout(text, i, num_tokens=n) for i, (text, n) in enumerate(responses)))


def results(*values: float | None) -> list[RewardResult]:
    return [RewardResult(value, (RewardPart("part", value, 1.0),)) for value in values]


def scaled(normaliser: Normaliser, *groups: list[RewardResult]) -> list[list[float | None]]:
    return [[parts[0].scaled for parts in group] for group in normaliser.scaled(groups)]


def test_a_part_is_scaled_within_its_group_and_a_missing_value_stays_missing() -> None:
    normaliser = Normaliser({0: "group"})
    (first, second) = scaled(normaliser, results(1.0, 2.0, None, 3.0), results(5.0, 5.0))
    assert first == [pytest.approx(-1 / 1.000001), 0.0, None, pytest.approx(1 / 1.000001)]
    assert second == [0.0, 0.0]


def test_r22_one_missing_value_leaves_the_others_of_its_group_finite() -> None:
    assert scaled(Normaliser({0: "group"}), results(None, 4.0), results(None, None)) == [[None, 0.0], [None, None]]


def test_running_figures_are_of_all_values_so_far_and_go_on_from_a_checkpoint() -> None:
    normaliser = Normaliser({0: "running"})
    assert scaled(normaliser, results(0.0, 2.0)) == [
        [pytest.approx(-1 / 2**0.5, 1e-5), pytest.approx(1 / 2**0.5, 1e-5)]
    ]
    resumed = Normaliser({0: "running"})
    resumed.load_state_dict(normaliser.state_dict())
    expected = (4.0 - 2.0) / (2.0 + 1e-6)  # of 0, 2, 4: mean 2, deviation 2
    assert scaled(normaliser, results(4.0)) == scaled(resumed, results(4.0)) == [[pytest.approx(expected)]]


def test_a_history_without_spread_gives_zero() -> None:
    assert scaled(Normaliser({0: "running"}), results(3.0, 3.0 + 1e-9)) == [[0.0, 0.0]]


def test_the_total_is_of_scaled_values_in_training_and_of_raw_ones_in_evaluation() -> None:
    rewards = [
        config(type="length", free_tokens=1, max_tokens=3, weight=0.5, normalise="group"),
        config(type="format", pattern="a.*"),
    ]
    texts = group(("aaa", 1), ("bbb", 2), ("aa", 3))  # lengths score 1, 0.5, 0: mean 0.5, deviation 0.5
    with RewardRunner(rewards, RewardRunnerConfig()) as runner:
        (training,) = runner.score([texts])
        (evaluation,) = runner.score([texts], normalised=False)
    assert [result.total for result in training] == [pytest.approx(1.5, 1e-5), 0.0, pytest.approx(0.5, 1e-5)]
    assert [result.total for result in evaluation] == [1.5, 0.25, 1.0]
    assert [part.value for part in training[0].parts] == [1.0, 1.0]
    assert training[0].parts[0].worth == pytest.approx(0.5, 1e-5)
    assert training[0].parts[1].scaled is None


def test_r22_a_function_that_gives_nan_costs_its_response_alone_under_normalisation() -> None:
    def sometimes_nan(response: str) -> float:
        return math.nan if response == "nan" else float(len(response))

    rewards = [config(type="length", free_tokens=1, max_tokens=3, normalise="group")]
    with RewardRunner(rewards, RewardRunnerConfig(workers=1), functions=[sometimes_nan]) as runner:
        (results,) = runner.score([group(("a", 1), ("nan", 2), ("aa", 3))])
    assert results[1].total is None
    assert results[1].parts[0].scaled == 0.0
    assert all(result.total is not None and math.isfinite(result.total) for result in (results[0], results[2]))


def test_an_inner_reward_is_not_normalised() -> None:
    with pytest.raises(ValueError, match="'math' in it sees one response at a time and cannot be normalised"):
        config(type="min", rewards=[{"type": "math", "normalise": "group"}, {"type": "format"}])


@pytest.mark.parametrize(
    ("algorithm", "normalise", "message"),
    [
        ("gdpo", "group", "algorithm 'gdpo' normalises each reward within its group by itself"),
        ("gdpo", "running", "algorithm 'gdpo' normalises each reward within its group by itself"),
        ("remax", "group", "whose greedy response has no group"),
    ],
)
def test_algorithms_that_cannot_take_it_are_refused(algorithm: str, normalise: str, message: str) -> None:
    with pytest.raises((ValueError, ConfigError), match=message):
        RunConfig.model_validate(
            {
                "name": "x",
                "model": {"path": "tiny"},
                "data": {"train": "rows.jsonl"},
                "algorithm": {"type": algorithm},
                "reward": [{"type": "math", "normalise": normalise}, {"type": "format", "weight": 0.1}],
            }
        )
