"""pass@k, maj@k and intervals against numbers worked by hand."""

from __future__ import annotations

import math

import pytest
from pydantic import TypeAdapter

from mmrl.config.evaluation import AnswerConfig, CorrectConfig
from mmrl.config.reward import FormatRewardConfig, GateRewardConfig, ModelRewardConfig, RewardConfig
from mmrl.evaluation.intervals import estimate, wilson
from mmrl.evaluation.outcomes import PromptOutcome, deciding_part, grade_of, outcome_of
from mmrl.evaluation.progress import AnswerCount, read_answered
from mmrl.evaluation.scores import majority_at_k, pass_at_k
from mmrl.evaluation.summary import summarise, value_of
from mmrl.trainer.evaluation import Grading
from mmrl.types import Message, RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup, TextPart


def outcome(prompt: str, correct: tuple[bool | None, ...], *, source: str = "a", answers=None) -> PromptOutcome:
    rewards = tuple(None if right is None else float(right) for right in correct)
    sizes = (3,) * len(correct)
    answers = answers if answers is not None else tuple("x" if right else "y" for right in correct)
    return PromptOutcome(prompt, source, correct, answers, rewards, sizes, (False,) * len(correct))


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (5, 2, 1, 2 / 5),
        (5, 2, 2, 1 - 3 / 10),  # C(3, 2) = 3 of C(5, 2) = 10 pairs have no right one
        (5, 2, 4, 1.0),
        (10, 3, 5, 1 - 21 / 252),  # C(7, 5) = 21, C(10, 5) = 252
        (4, 0, 4, 0.0),
        (1, 1, 1, 1.0),
    ],
)
def test_pass_at_k_is_the_unbiased_estimator(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


def test_pass_at_k_of_large_numbers_neither_overflows_nor_rounds_away() -> None:
    # 1 - prod((n - c - i) / (n - i)) as published, for n 1000, c 1, k 10: 10/1000
    assert pass_at_k(1000, 1, 10) == pytest.approx(0.01, abs=1e-12)


def test_pass_at_k_refuses_more_than_there_are() -> None:
    with pytest.raises(ValueError, match=r"pass@3 needs at least 3 responses \(got 2\)"):
        pass_at_k(2, 1, 3)


def test_majority_counts_the_answer_with_the_most_votes() -> None:
    assert majority_at_k(["7", "7", "3"], [True, True, False], 3) == 1.0
    assert majority_at_k(["7", "3", "3"], [True, False, False], 3) == 0.0


def test_a_tie_of_votes_is_won_by_chance() -> None:
    assert majority_at_k(["7", "3"], [True, False], 2) == 0.5
    # Of the three pairs of (7, 7, 3): one has both votes for 7, two are tied.
    assert majority_at_k(["7", "7", "3"], [True, True, False], 2) == pytest.approx((1 + 0.5 + 0.5) / 3)


def test_responses_without_an_answer_abstain_and_no_vote_at_all_is_wrong() -> None:
    assert majority_at_k(["7", None, None], [True, False, False], 3) == 1.0
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_maj_at_k_of_many_responses_is_a_mean_over_drawn_subsets_that_is_the_same_each_time() -> None:
    answers, correct = ["a"] * 24 + ["b"] * 8, [True] * 24 + [False] * 8
    value = majority_at_k(answers, correct, 5)
    # At least 3 of 5 draws from 24 right and 8 wrong ones.
    exact = sum(math.comb(24, j) * math.comb(8, 5 - j) for j in (3, 4, 5)) / math.comb(32, 5)
    assert value == pytest.approx(exact, abs=0.03)
    assert value == majority_at_k(answers, correct, 5)


def test_wilson_gives_the_published_interval() -> None:
    # 8 of 10 at 95 %: centre (0.8 + 1.9207/10) / 1.38415 = 0.71675, half width 0.22659
    assert wilson(8, 10) == pytest.approx((0.490162, 0.943318), abs=1e-6)
    assert wilson(0, 10) == pytest.approx((0.0, 0.277533), abs=1e-6)
    assert wilson(10, 10) == pytest.approx((0.722467, 1.0), abs=1e-6)


def test_a_mean_has_students_interval_over_prompts() -> None:
    found = estimate([1.0, 2.0, 3.0, 4.0])
    half = 3.182446 * 1.290994 / 2  # t of 3 degrees, standard deviation, square root of 4
    assert (found.value, found.method) == (2.5, "t")
    assert (found.low, found.high) == (pytest.approx(2.5 - half, abs=1e-5), pytest.approx(2.5 + half, abs=1e-5))
    assert estimate([0.5]).low is None
    assert estimate([0.0, 0.0, 0.0]).low is None, "no difference on three prompts is none on none"


def test_the_interval_of_sampled_answers_is_over_prompts_and_not_over_responses() -> None:
    clear = [outcome(str(index), (index % 2 == 0,) * 8) for index in range(10)]
    mixed = [outcome(str(index), (True, False) * 4) for index in range(10)]
    first, second = (summarise(each).metrics["accuracy"] for each in (clear, mixed))
    assert first.value == second.value == 0.5
    assert (first.method, first.num) == ("wilson", 10)
    assert (second.low, second.high, second.method) == (None, None, "none"), "ten equal values are no certainty"


def test_a_summary_has_pass_and_maj_and_each_source() -> None:
    outcomes = [outcome("1", (True, False), source="geo"), outcome("2", (False, False), source="chart")]
    summary = summarise(outcomes, ks=(1, 2))
    assert {name: each.value for name, each in summary.metrics.items()} == {
        "accuracy": 0.25,
        "reward": 0.25,
        "pass@1": 0.25,
        "pass@2": 0.5,
        "maj@2": 0.25,
        "length": 3.0,
        "truncated": 0.0,
    }
    assert summary.sources["geo"]["accuracy"].value == 0.5
    flat = summary.flat("eval/")
    assert flat["eval/source/chart/accuracy"] == 0.0
    assert flat["eval/accuracy_low"] < 0.25 < flat["eval/accuracy_high"]


def test_what_could_not_be_graded_is_missing_and_not_wrong() -> None:
    outcomes = [outcome("1", (True, None, None)), outcome("2", (None, None, None))]
    summary = summarise(outcomes, ks=(1, 2))
    assert (summary.metrics["accuracy"].value, summary.metrics["accuracy"].num, summary.missing) == (1.0, 1, 5)
    assert "pass@2" not in summary.metrics
    assert value_of(outcomes[0], "pass@1") == 1.0


def test_a_response_is_right_by_the_first_reward_that_does_not_only_shape() -> None:
    assert deciding_part(["format", "math"], CorrectConfig(), shaping=["format"]) == "math"
    assert deciding_part(["format"], CorrectConfig(), shaping=["format"]) == "format"
    assert deciding_part(["a", "b"], CorrectConfig(part="b")) == "b"
    assert deciding_part([], CorrectConfig()) is None


def test_a_learned_score_says_of_no_response_that_it_is_right_unless_asked() -> None:
    assert deciding_part(["model", "math"], CorrectConfig(), scores=["model"]) == "math"
    assert deciding_part(["model", "format"], CorrectConfig(), shaping=["format"], scores=["model"]) is None
    assert deciding_part(["model"], CorrectConfig(part="model"), scores=["model"]) == "model"
    gated = GateRewardConfig(condition=FormatRewardConfig(pattern="x"), reward=ModelRewardConfig(path="m"))
    assert (gated.has_open_scale, FormatRewardConfig(pattern="x").has_open_scale) == (True, False)
    assert not gated.judges_answer


@pytest.mark.parametrize(
    ("rewards", "part"),
    [
        ([{"type": "format", "pattern": "x"}, {"type": "exact"}], "exact"),
        ([{"type": "model", "path": "m"}, {"type": "format", "pattern": "x"}], None),
        ([{"type": "format", "pattern": "x"}, {"type": "tags"}], "format"),
        ([{"type": "gate", "condition": {"type": "format", "pattern": "x"}, "reward": {"type": "exact"}}], "gate"),
        ([{"type": "tags"}, {"type": "function", "path": "f.py"}], "score"),
    ],
)
def test_what_looks_at_the_form_alone_says_of_no_answer_that_it_is_right(rewards: list[dict], part: str | None) -> None:
    configs = TypeAdapter(tuple[RewardConfig, ...]).validate_python(rewards)
    names = [reward.part_name for reward in configs]
    result = RewardResult(1.0, tuple(RewardPart(name, 1.0, 1.0) for name in names))
    sample = Sample("s", (Message("user", (TextPart("?"),)),), "1")
    rollout = Rollout("s", 0, (1,), (1,), (0.0,), "stop", "1", 0, 0)
    group = ScoredGroup(RolloutGroup(sample, (rollout,)), (result,))
    assert Grading.of(AnswerConfig(), configs, [group]).part == part


def test_a_response_votes_for_what_was_extracted_whatever_its_spaces_and_case() -> None:
    result = RewardResult(0.9, (RewardPart("iou", 0.5, 1.0, extracted="  Two\n CATS "),))
    assert grade_of(result, part="iou", at_least=0.5) == (True, "two cats")
    assert grade_of(result, part="iou", at_least=0.6) == (False, "two cats")
    assert grade_of(RewardResult(None, (RewardPart("iou", None, 1.0),)), part="iou", at_least=0.5) == (None, None)


def test_an_outcome_is_made_of_a_scored_group() -> None:
    sample = Sample("s", (Message("user", (TextPart("?"),)),), "7", {"source": "geo"})
    rollouts = tuple(Rollout("s", i, (1, 2), (1, 1), (0.0, 0.0), "length", "7", 0, i) for i in range(2))
    rewards = tuple(RewardResult(value, (RewardPart("exact", value, 2.0, extracted="7"),)) for value in (1.0, 0.0))
    found = outcome_of(ScoredGroup(RolloutGroup(sample, rollouts), rewards), part="exact", at_least=1.0)
    assert (found.source, found.correct, found.lengths, found.truncated) == ("geo", (True, False), (2, 2), (True, True))


def test_the_k_follow_from_the_number_of_responses() -> None:
    assert AnswerConfig().ks == ()
    assert AnswerConfig(samples_per_prompt=6, temperature=1.0).ks == (1, 2, 4, 6)
    assert AnswerConfig(samples_per_prompt=6, temperature=1.0, k=(5, 1)).ks == (1, 5)
    with pytest.raises(ValueError, match="pass@8 needs at least 8 responses"):
        AnswerConfig(samples_per_prompt=4, temperature=1.0, k=(8,))
    with pytest.raises(ValueError, match="4 greedy responses to a prompt are all the same"):
        AnswerConfig(samples_per_prompt=4)


def test_an_evaluation_says_how_far_it_is_some_twenty_times_and_that_is_read_back() -> None:
    said: list[str] = []
    count = AnswerCount(1000, said.append)
    for _ in range(1000):
        count.add()
    assert len(said) == 20
    assert [read_answered(text) for text in (said[0], said[-1], "loading")] == [(50, 1000), (1000, 1000), None]
    few: list[str] = []
    count = AnswerCount(3, few.append)
    for _ in range(3):
        count.add()
    assert few == [f"answered {number} of 3 prompts" for number in (1, 2, 3)]
