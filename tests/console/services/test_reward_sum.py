"""Why a response has its reward and its advantage: each line is arithmetic that was done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.services.reward_sum import advantage_of, spread_of, sum_of
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import RewardPart


def _response(
    *parts: RewardPart, reward: float | None, index: int = 0, advantage: float | None = None
) -> ResponseRecord:
    return ResponseRecord(index, 0, 0, reward, parts, advantage, 3, "stop", 1, text="x")


def _group(*rewards: float | None, advantage: float | None = None, split: str = "train") -> GroupRecord:
    """Responses with these rewards, the first of which has the advantage."""
    responses = tuple(
        _response(RewardPart("a", reward, 1.0), reward=reward, index=index, advantage=None if index else advantage)
        for index, reward in enumerate(rewards)
    )
    return GroupRecord(1, split, 10, 0, "p", None, None, "all", 1.0, responses)


def test_a_reward_is_the_sum_of_its_parts_times_their_weights() -> None:
    response = _response(RewardPart("exact", 1.0, 1.0), RewardPart("length", -0.5, 0.2), reward=0.9)
    assert sum_of(response).line == "1.000 × 1.000 + (−0.5000) × 0.2000 = 0.9000".replace("1.000", "1")


def test_a_normalised_part_counts_with_what_it_was_brought_to() -> None:
    told = sum_of(_response(RewardPart("judge", 7.0, 0.5, scaled=-1.5), reward=-0.75))
    assert told.line == "(−1.500) × 0.5000 = −0.7500"
    assert told.note == "judge is normalised before the weight."


def test_a_part_that_failed_leaves_no_reward_and_it_is_said_that_this_is_no_zero() -> None:
    told = sum_of(_response(RewardPart("exact", None, 1.0, error="hung"), RewardPart("form", 1.0, 1.0), reward=None))
    assert told.line == "no reward"
    assert told.note.startswith("exact gave no value")
    assert "not 0" in told.note


def test_a_veto_and_a_total_that_is_no_sum_are_told() -> None:
    vetoed = _response(RewardPart("exact", 1.0, 1.0), RewardPart("safe", 0.0, 0.0, vetoes=True), reward=-1.0)
    assert sum_of(vetoed).line == "reward −1, set by safe"
    assert sum_of(vetoed).note == "safe overruled the sum of the parts, 1."
    assert "add up to 1, and the run kept 0.3000" in sum_of(_response(RewardPart("a", 1.0, 1.0), reward=0.3)).note


@pytest.mark.parametrize(
    ("group", "line", "note"),
    [
        # mean 0.25, deviation sqrt((0.75² + 3 · 0.25²) / 3) = 0.5
        (_group(1.0, 0.0, 0.0, 0.0, advantage=1.5), "(1 − 0.2500) ÷ 0.5000 = +1.500", "over its standard deviation."),
        (_group(1.0, 0.0, 0.0, 0.0, advantage=0.75), "1 − 0.2500 = +0.7500", "Reward less the group's mean."),
        (_group(1.0, 0.5, 0.0, 0.1, advantage=0.8), "1 − 0.2000 = +0.8000", "Reward less the mean of the others."),
        (_group(0.4, 0.4, 0.4, advantage=0.0), "0.4000 − 0.4000 = 0", "The group has no spread."),
        (_group(-1.0, None, -2.0, advantage=0.5), "−1 − (−1.500) = +0.5000", "Reward less the group's mean."),
    ],
)
def test_an_advantage_is_told_as_what_gives_it(group: GroupRecord, line: str, note: str) -> None:
    told = advantage_of(group.responses[0], group)
    assert told.line == line
    assert told.note.endswith(note)


def test_an_advantage_that_no_way_gives_is_not_explained_away() -> None:
    group = _group(1.0, 0.0, 0.0, 0.0, advantage=0.123)
    told = advantage_of(group.responses[0], group)
    assert told.line == "advantage +0.1230"
    assert "more than this group's rewards" in told.note


def test_what_the_gate_left_out_is_told_where_only_that_gives_the_advantage() -> None:
    """All four are wrong, and only their length tells them apart: the gate leaves length out, so nothing is learned."""
    responses = tuple(
        _response(
            RewardPart("exact", 0.0, 1.0),
            RewardPart("length", value, 0.2),
            reward=0.2 * value,
            index=index,
            advantage=0.0,
        )
        for index, value in enumerate((1.0, 0.5, 0.0, 0.0))
    )
    group = replace(_group(0.0), responses=responses)
    told = advantage_of(responses[0], group, shaping=["length"])
    assert told.line == "0 − 0 = 0"
    assert told.note == "The group has no spread. Every response failed, so the outcome gate left length out."
    assert "outcome gate" not in advantage_of(replace(responses[0], advantage=0.115), group, shaping=["length"]).note


def test_why_there_is_no_advantage_is_told() -> None:
    for group, word in (
        (_group(1.0, 0.0, split="eval"), "evaluation"),
        (_group(None, 1.0), "without a reward"),
        (_group(1.0, 1.0), "equal"),
    ):
        told = advantage_of(group.responses[0], group)
        assert told.line == "no advantage"
        assert word in told.note


def test_the_spread_of_a_group_is_told_of_the_rewards_that_are_there() -> None:
    assert spread_of(_group(1.0, 0.0, 0.0, 0.0)) == "mean 0.2500, sample standard deviation 0.5000, of 4 rewards"
    assert spread_of(_group(1.0, None)) == "one response has a reward, 1"
    assert spread_of(_group(None)) == "no response of the group has a reward"
    assert "teaches nothing" in spread_of(_group(0.2, 0.2))
