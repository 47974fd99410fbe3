"""The rewards made of others: gate, min, product, veto."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from rewards_builders import group, item, sample

from mmrl.config.reward import RewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner, Score
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.registry import build_reward, deadline_s, is_isolated
from mmrl.rewards.runner import reward_metrics

FORMAT = {"type": "format"}
EXACT = {"type": "exact", "boxed": False}
LENGTH = {"type": "length", "max_tokens": 10}


def config(**settings: Any) -> Any:
    return TypeAdapter(RewardConfig).validate_python(settings)


def score(settings: dict[str, Any], response: str, answer: str | None = "7", num_tokens: int = 5) -> Score:
    return build_reward(config(**settings)).score(item(response, answer, num_tokens=num_tokens))


GATE = {"type": "gate", "condition": FORMAT, "reward": {"type": "exact", "weight": 2.0}, "otherwise": -0.5}


@pytest.mark.parametrize(
    ("response", "value"),
    [(r"\boxed{7}", 2.0), (r"\boxed{8}", 0.0), ("7", -0.5), (r"\boxed{7", -0.5), ("", -0.5)],
)
def test_a_gate_pays_its_reward_only_where_its_condition_holds(response: str, value: float) -> None:
    assert score(GATE, response).value == value


def test_a_gate_tells_of_both_and_does_not_compute_what_it_does_not_pay() -> None:
    opened = score(GATE, r"\boxed{7}")
    assert opened == Score(
        2.0, "7", "format 1 (matches the pattern); exact 2 (equals the reference)", {"format": 1.0, "exact": 2.0}
    )
    assert score(GATE, "7", answer=None).extras == {"format": 0.0}


def test_a_gate_opens_at_its_bound() -> None:
    gate = {"type": "gate", "condition": LENGTH, "at_least": 0.5, "reward": EXACT}
    assert score(gate, "7", num_tokens=5).value == 1.0
    assert score(gate, "7", num_tokens=6).value == 0.0


@pytest.mark.parametrize(
    ("response", "smallest", "product"),
    [("7", 0.5, 0.5), ("8", 0.0, 0.0), ("", 0.0, 0.0)],
)
def test_min_and_product_combine_all_inner_values(response: str, smallest: float, product: float) -> None:
    assert score({"type": "min", "rewards": [EXACT, LENGTH]}, response).value == smallest
    assert score({"type": "product", "rewards": [EXACT, LENGTH]}, response).value == product


def test_inner_weights_are_factors() -> None:
    rewards = [{**EXACT, "weight": 3.0}, {**LENGTH, "weight": 0.5}]
    assert score({"type": "min", "rewards": rewards}, "7").value == 0.25
    assert score({"type": "product", "rewards": rewards}, "7").value == 0.75


def test_an_inner_failure_fails_the_whole_and_is_named() -> None:
    with pytest.raises(RewardFailure, match="its reward 'exact': the sample has no reference answer"):
        score({"type": "min", "rewards": [LENGTH, EXACT]}, "7", answer=None)


def test_combinations_can_hold_combinations() -> None:
    inner = {"type": "product", "rewards": [EXACT, LENGTH]}
    assert score({"type": "gate", "condition": EXACT, "reward": inner}, "7").value == 0.5


def test_a_combination_is_isolated_if_a_part_is_and_has_the_time_of_all() -> None:
    plain = config(type="min", rewards=[EXACT, LENGTH])
    math = config(
        type="gate", condition=FORMAT, reward={"type": "min", "rewards": [EXACT, {"type": "math", "timeout_s": 3}]}
    )
    assert (is_isolated(plain), deadline_s(plain)) == (False, 0.0)
    assert (is_isolated(math), deadline_s(math)) == (True, 4.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "min", "rewards": [EXACT]}, "at least 2"),
        ({"type": "min", "rewards": [EXACT, EXACT]}, "two rewards in it are named 'exact'"),
        ({"type": "gate", "condition": FORMAT}, "reward"),
        ({"type": "gate", "condition": {"type": "nothing"}, "reward": EXACT}, "nothing"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**settings)


VETO = {"type": "veto", "reward": {"type": "keyword", "keywords": ["forbidden"]}, "total": -2.0}


def test_a_veto_sets_the_total_whatever_the_others_say() -> None:
    with RewardRunner([config(type="exact"), config(**VETO)], RewardRunnerConfig()) as runner:
        ((clean, vetoed, wrong),) = runner.score(
            [group(r"\boxed{7}", r"forbidden \boxed{7}", r"forbidden \boxed{8}", answer="7")]
        )
    assert [result.total for result in (clean, vetoed, wrong)] == [1.0, -2.0, -2.0]
    assert [result.parts[1].value for result in (clean, vetoed, wrong)] == [1.0, 0.0, 0.0]
    assert vetoed.parts[1].explanation == "keyword -1 (found 'forbidden' x1)"
    metrics = reward_metrics([clean, vetoed, wrong])
    assert metrics["reward/veto/vetoed"] == 2.0
    assert "reward/exact/vetoed" not in metrics


def test_the_lowest_of_several_vetoes_counts() -> None:
    other = {"type": "veto", "name": "style", "reward": FORMAT, "at_least": 1.0, "total": -1.0}
    with RewardRunner([config(type="exact"), config(**VETO), config(**other)], RewardRunnerConfig()) as runner:
        results = runner.score_texts([(sample(), "forbidden"), (sample(), "7"), (sample(), r"\boxed{7}")])
    assert [result.total for result in results] == [-2.0, -1.0, 1.0]


def test_a_veto_that_fails_leaves_no_total() -> None:
    veto = config(type="veto", reward={"type": "exact"})
    with RewardRunner([config(type="format"), veto], RewardRunnerConfig()) as runner:
        (result,) = runner.score_texts([(sample(None), r"\boxed{7}")])
    assert result.total is None
    assert "its reward 'exact': the sample has no reference answer" in (result.parts[1].error or "")


@pytest.mark.parametrize(("response", "value"), [("7", 1.0), ("7 bad", 0.0)])
def test_a_veto_inside_a_gate_counts_as_one_where_it_holds(response: str, value: float) -> None:
    veto = {"type": "veto", "reward": {"type": "keyword", "keywords": ["bad"]}}
    assert score({"type": "gate", "condition": veto, "reward": {**EXACT, "boxed": False}}, response).value == value
    assert score({"type": "min", "rewards": [{**veto, "weight": 0.5}, LENGTH]}, response).value == value / 2
