"""The outcome gate: a group in which every response failed learns nothing from shaping, unless asked (case T14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.outcome import gated
from mmrl.algorithms.selection import Selection
from mmrl.config import RunConfig
from mmrl.config.algorithm import (
    AlgorithmConfig,
    GrpoConfig,
    PpoConfig,
    ReinforcePlusPlusConfig,
    RemaxConfig,
    VapoConfig,
)
from mmrl.types import RewardPart, RewardResult, ScoredGroup

SHAPED = (-0.1, -0.2, -0.3, -0.1)


def group(*rewards: dict[str, float], weights: dict[str, float] | None = None) -> ScoredGroup:
    """A group whose responses have these parts; the total is their weighted sum."""
    (scored,) = oracle.scored_groups([[oracle.response(0.0, [1.0, 1.0]) for _ in rewards]])
    results = []
    for values in rewards:
        parts = tuple(RewardPart(name, value, (weights or {}).get(name, 1.0)) for name, value in values.items())
        results.append(RewardResult(sum(part.weight * (part.value or 0) for part in parts), parts))
    return ScoredGroup(scored.group, tuple(results))


def select(*groups: ScoredGroup, **settings: Any) -> Selection:
    return build_algorithm(GrpoConfig(**settings), shaping_parts=["length"]).select(groups)


def advantages(selection: Selection) -> list[float]:
    """Of each response, by GRPO."""
    rows = [[oracle.response(0.0, [1.0, 1.0]) for _ in one.rewards] for one in selection.groups]
    found = build_algorithm(GrpoConfig()).complete(selection.groups, oracle.group_batch(selection.groups, rows))
    assert found.advantages is not None
    return found.advantages[:, 0].tolist()


ALL_WRONG = group(*({"math": 0.0, "length": value} for value in SHAPED))
ONE_RIGHT = group({"math": 1.0, "length": -0.3}, {"math": 0.0, "length": -0.1})


def test_t14_length_shaping_gives_an_all_wrong_group_no_spread_and_the_share_of_such_groups_is_reported() -> None:
    selection = select(ALL_WRONG, ONE_RIGHT)
    assert advantages(selection)[:4] == [0.0] * 4
    assert selection.stats.metrics()["groups/share_all_fail_with_spread"] == 0.5
    assert selection.stats.metrics()["groups/share_without_spread"] == 0.5


def test_t14_it_does_where_the_gate_is_turned_off() -> None:
    selection = select(ALL_WRONG, ONE_RIGHT, outcome_gate="off")
    assert max(advantages(selection)[:4]) == pytest.approx(0.075 / (0.0091666667**0.5 + 1e-6))
    assert selection.stats.metrics()["groups/share_all_fail_with_spread"] == 0.5


def test_t14_a_single_shaped_reward_takes_the_gate_of_whole_groups() -> None:
    shaped = group(*({"task": value} for value in SHAPED))
    assert any(advantages(select(shaped)))
    assert advantages(select(shaped, outcome_gate="group")) == [0.0] * 4


def test_a_group_with_one_right_answer_keeps_its_shaping() -> None:
    (kept,) = select(ONE_RIGHT).groups
    assert [reward.total for reward in kept.rewards] == [0.7, -0.1]


def test_a_wrong_group_still_learns_from_its_form() -> None:
    parts = ({"math": 0.0, "format": 1.0, "length": -0.3}, {"math": 0.0, "format": 0.0, "length": -0.1})
    wrong = group(*parts, weights={"format": 0.1})
    selection = select(wrong)
    assert [reward.total for reward in selection.groups[0].rewards] == [0.1, 0.0]
    assert select(wrong, outcome_gate="group").stats.num_without_spread == 1


def test_the_gate_of_whole_groups_keeps_the_level_of_their_scores() -> None:
    (kept,) = select(group({"math": -1.0, "length": -0.1}, {"math": -1.0, "length": -0.3}), outcome_gate="group").groups
    assert [reward.total for reward in kept.rewards] == pytest.approx([-1.2, -1.2])
    assert [part.value for part in kept.rewards[0].parts] == pytest.approx([-1.0, -0.2])


def test_dropping_judges_spread_after_the_gate() -> None:
    selection = select(ALL_WRONG, ONE_RIGHT, drop_groups_without_spread=True)
    assert [len(one.rewards) for one in selection.groups] == [2]
    assert len(select(ALL_WRONG, drop_groups_without_spread=True, outcome_gate="off").groups) == 1


def test_rewards_that_only_shape_are_learned_from_since_nothing_else_is_there() -> None:
    selection = select(group(*({"length": value} for value in SHAPED)))
    assert any(advantages(selection))


def test_a_total_that_is_no_sum_of_its_parts_is_left_as_it_is() -> None:
    vetoed = ScoredGroup(ALL_WRONG.group, tuple(RewardResult(-5.0, reward.parts) for reward in ALL_WRONG.rewards))
    assert [reward.total for reward in select(vetoed).groups[0].rewards] == [-5.0] * 4


@pytest.mark.parametrize("config", [PpoConfig(), VapoConfig(), ReinforcePlusPlusConfig(), RemaxConfig()])
def test_wrong_responses_pay_for_their_length_where_no_group_is_compared(config: Any) -> None:
    """Else a penalty on length or repetition would act on right responses alone."""
    kept = build_algorithm(config, shaping_parts=["length"]).select([ALL_WRONG, ONE_RIGHT]).groups
    assert [reward.total for reward in kept[0].rewards] == pytest.approx(SHAPED)


def test_the_advantages_of_another_algorithm_bring_their_gate() -> None:
    config = ReinforcePlusPlusConfig.model_validate({"group_size": 4, "advantage": "grpo"})
    (kept,) = build_algorithm(config, shaping_parts=["length"]).select([ALL_WRONG]).groups
    assert [reward.total for reward in kept.rewards] == [0.0] * 4


def test_a_single_response_keeps_its_shaping() -> None:
    """A group of one has nothing to be compared with, whatever the user's function makes of it."""
    config = ReinforcePlusPlusConfig.model_validate({"advantage": {"path": "mine.py"}, "outcome_gate": "shaping"})
    alone = group({"math": 0.0, "length": -0.2})
    assert gated(alone, config.gate, ["length"]) is alone


def test_the_greedy_response_keeps_its_score_whatever_was_sampled_beside_it() -> None:
    greedy = RewardResult(-0.4, (RewardPart("math", 0.0, 1.0), RewardPart("length", -0.4, 1.0)))
    algorithm = build_algorithm(RemaxConfig(group_size=4), shaping_parts=["length"])
    for sampled in (ALL_WRONG, ONE_RIGHT):
        (kept,) = algorithm.select([replace(sampled, greedy_reward=greedy)]).groups
        assert kept.greedy_reward == greedy
    assert gated(replace(ALL_WRONG, greedy_reward=greedy), "shaping", ["length"]).greedy_reward == greedy


def test_a_gate_of_groups_is_refused_where_none_are_compared() -> None:
    for settings in ({"type": "ppo"}, {"type": "remax"}, {"type": "reinforce_plus_plus"}):
        for gate in ("shaping", "group"):
            with pytest.raises(ValidationError, match=f"outcome_gate: {gate} acts where the responses of a prompt are"):
                TypeAdapter(AlgorithmConfig).validate_python({**settings, "outcome_gate": gate})
        config: Any = TypeAdapter(AlgorithmConfig).validate_python({**settings, "outcome_gate": "off"})
        assert config.gate == "off"


def test_the_gate_does_not_change_the_scores_that_are_recorded() -> None:
    select(ALL_WRONG)
    assert ALL_WRONG.rewards[2].total == pytest.approx(-0.3)


def test_which_rewards_shape_is_said_by_their_type_or_their_config() -> None:
    rewards = [{"type": "exact"}, {"type": "repetition"}, {"type": "format", "shaping": True}]
    run = {"name": "x", "model": {"path": "m"}, "data": {"train": "digits"}}
    config = RunConfig.model_validate({**run, "reward": rewards})
    assert [reward.shaping for reward in config.reward] == [False, True, True]


def test_advantages_of_gated_groups_are_exactly_zero_in_float32() -> None:
    thirds = group(*({"math": 0.0, "length": value / 3} for value in SHAPED))
    assert torch.tensor(advantages(select(thirds))).count_nonzero() == 0
