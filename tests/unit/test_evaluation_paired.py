"""The paired test: right numbers, and a level that holds."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from mmrl.errors import ConfigError, DataError
from mmrl.evaluation.outcomes import PromptOutcome
from mmrl.evaluation.paired import compare_outcomes, sign_flip_p_value


def evaluation(chances: list[float], *, seed: int, responses: int = 1) -> list[PromptOutcome]:
    """What a checkpoint gives that answers prompt i right with probability chances[i], under a seed."""
    draw = random.Random(seed)
    outcomes = []
    for index, chance in enumerate(chances):
        correct = tuple(draw.random() < chance for _ in range(responses))
        rewards = tuple(map(float, correct))
        outcomes.append(
            PromptOutcome(
                f"p{index}", "s", correct, ("x",) * responses, rewards, (1,) * responses, (False,) * responses
            )
        )
    return outcomes


def test_the_p_value_counts_sign_patterns() -> None:
    # Sums of four signs are 0 in 6 of 16 patterns; a sum of 2 or more either way is in the other 10.
    assert sign_flip_p_value([1.0, 1.0, 1.0, -1.0]) == 10 / 16
    assert sign_flip_p_value([1.0] * 6) == 2 / 64
    assert sign_flip_p_value([0.0, 0.0]) == 1.0
    # Sums of 3, 1 and 1 with signs: 5, 3, 3, 1 and their negatives; all but the two of 1 are at least 3.
    assert sign_flip_p_value([3.0, 1.0, -1.0]) == 6 / 8


def test_for_right_or_wrong_it_is_mcnemars_exact_test() -> None:
    # 9 prompts better and 2 worse: 2 · (C(11,0) + C(11,1) + C(11,2)) / 2^11 = 2 · 67 / 2048
    assert sign_flip_p_value([1.0] * 9 + [-1.0] * 2 + [0.0] * 50) == pytest.approx(134 / 2048)


def test_drawn_patterns_come_close_to_all_of_them_and_repeat() -> None:
    # 14 better, 6 worse: 2 · sum of C(20, i) for i up to 6, over 2^20
    exact = 2 * (1 + 20 + 190 + 1140 + 4845 + 15504 + 38760) / 2**20
    assert sign_flip_p_value([1.0] * 14 + [-1.0] * 6) == pytest.approx(exact, abs=1e-12)
    assert sign_flip_p_value([0.25] * 14 + [-0.25] * 6) == pytest.approx(exact, abs=1e-12)
    uneven = [math.sqrt(index) * (-1 if index % 3 == 0 else 1) for index in range(2, 14)]
    sums = [abs(math.fsum(map(math.prod, zip(signs, uneven)))) for signs in itertools.product((1, -1), repeat=12)]  # noqa: B905
    share = sum(each >= abs(math.fsum(uneven)) - 1e-9 for each in sums) / len(sums)
    assert sign_flip_p_value(uneven) == pytest.approx(share, abs=0.02)
    assert sign_flip_p_value(uneven) == sign_flip_p_value(list(reversed(uneven)))


@pytest.mark.parametrize("responses", [1, 4])
def test_two_like_checkpoints_under_other_seeds_are_called_different_in_at_most_8_percent_of_400_tries(
    responses: int,
) -> None:
    draw = random.Random(1)
    different = 0
    for index in range(400):
        chances = [draw.betavariate(0.8, 0.8) for _ in range(40)]
        first = evaluation(chances, seed=2 * index, responses=responses)
        second = evaluation(chances, seed=2 * index + 1, responses=responses)
        different += compare_outcomes(first, second).is_different
    assert different <= 0.08 * 400
    assert different > 0


def test_a_better_checkpoint_is_found() -> None:
    first, second = ([chance] * 200 for chance in (0.4, 0.6))
    result = compare_outcomes(evaluation(first, seed=0), evaluation(second, seed=1))
    assert result.is_different
    assert result.low is not None
    assert 0 < result.low < result.difference
    assert result.better > result.worse
    assert result.better + result.worse + result.same == 200
    assert result.verdict.startswith("the second is better")


def test_the_same_answers_are_no_difference() -> None:
    same = evaluation([0.5] * 30, seed=3)
    result = compare_outcomes(same, same)
    assert (result.difference, result.p_value, result.same) == (0.0, 1.0, 30)
    assert result.verdict == "no difference that 30 prompts could show (p = 1)"


def test_prompts_that_only_one_has_count_in_nothing_and_are_told() -> None:
    both = evaluation([1.0, 1.0, 0.0], seed=0)
    result = compare_outcomes(both, both[1:])
    assert (result.num_prompts, result.only_first, result.only_second, result.first) == (2, 1, 0, 0.5)
    with pytest.raises(DataError, match="no prompt has accuracy in both evaluations"):
        compare_outcomes(both[:1], both[1:])


@pytest.mark.parametrize("metric", ["nonsense", "pass@0", "maj@", "pass@x"])
def test_a_metric_that_there_is_none_of_is_wrong_use(metric: str) -> None:
    same = evaluation([0.5] * 4, seed=0)
    with pytest.raises(ConfigError, match=r"allowed: accuracy, reward, pass@K and maj@K"):
        compare_outcomes(same, same, metric=metric)


def test_two_evaluations_without_a_difference_have_no_interval_of_no_width() -> None:
    same = evaluation([0.5] * 40, seed=0)
    result = compare_outcomes(same, same)
    assert (result.difference, result.low, result.high, result.p_value) == (0.0, None, None, 1.0)
