"""What graders of other projects got wrong, case by case (the number is the case's), and its neighbours.

Cases that need processes of their own are in tests/integration/test_reward_faults.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rewards_builders import item

from mmrl.config.reward import ChoiceRewardConfig, ExactRewardConfig, IouRewardConfig, MathRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner, reward
from mmrl.rewards.answers.choice import ChoiceReward
from mmrl.rewards.answers.exact import ExactReward
from mmrl.rewards.answers.math.reward import MathReward
from mmrl.rewards.function.function import UserFunction
from mmrl.rewards.runner import reward_metrics
from mmrl.rewards.vision.iou import IouReward
from mmrl.types import ImagePart, ImageRef, Message, RewardPart, RewardResult, Sample, TextPart

MATH = MathReward(MathRewardConfig())
CHOICE = ChoiceReward(ChoiceRewardConfig())
EXACT = ExactReward(ExactRewardConfig())


def boxed(gold: str, answer: str) -> float | None:
    return MATH.score(item(rf"So it is $\boxed{{{answer}}}$.", gold)).value


def written(gold: str, response: str) -> float | None:
    return MATH.score(item(response, gold)).value


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("840", r"\boxed{840}. And so again \boxed{840}"),
        ("3", r"\boxed{2} no, \boxed{3}"),
        ("3", r"\boxed{2} \boxed{3}"),
        ("3", r"\boxed{3} and then \boxed{}"),
        (r"\frac{1}{2}", r"\boxed{\frac{1}{3}} wait \boxed{\frac{1}{2}}"),
        ("2, 3", r"\boxed{2} and \boxed{3}"),
    ],
)
def test_r02_the_last_of_several_boxes_wins(gold: str, response: str) -> None:
    assert written(gold, response) == 1.0
    assert written("1/7", response) == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "value"),
    [
        ("1000", "1,000", 1.0),
        ("(0,1)", "0,1", 1.0),
        ("01", "0,1", 0.0),
        ("1", "0,1", 0.0),
        ("1234", "12,34", 0.0),
        ("12,34", "12,34", 1.0),
        ("1234567", "1,234,567", 1.0),
        ("1234567", "12,34,567", 0.0),
        ("100", "1,00", 0.0),
        ("12", "1,2", 0.0),
    ],
)
def test_r03_commas_part_numbers_unless_they_part_thousands(gold: str, answer: str, value: float) -> None:
    assert boxed(gold, answer) == value


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("$x<3$", r"$(-\infty,3)$"),
        (r"$(-\infty,3)$", "$x<3$"),
        (r"x \ge -1", r"[-1, \infty)"),
        ("0 < x < 1", "(0, 1)"),
        (r"x<-1 \text{ or } x>1", r"(-\infty,-1)\cup(1,\infty)"),
    ],
)
def test_r04_an_inequality_and_its_interval_are_one_whichever_is_the_reference(gold: str, answer: str) -> None:
    assert boxed(gold, answer) == 1.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gold", "answer", "value"),
    [
        ("3x + 4y + 14=0", "3*x-1*y+13=0", 0.0),
        ("3x + 4y + 14=0", "6x + 8y + 28 = 0", 1.0),
        ("3x + 4y + 14=0", "14 = -3x - 4y", 1.0),
        ("x^2 + y^2 = 4", "x^2 - y^2 = 4", 0.0),
        ("y = 2x + 1", "y = 3x + 1", 0.0),
        ("y = 2x + 1", "x = 2y + 1", 0.0),
        ("x^2 = 4", "4", 0.0),
        ("x = 5", "5 = x", 1.0),
        ("2x + 1", "5 = 2x + 1", 0.0),
    ],
)
def test_r06_an_equation_is_both_of_its_sides(gold: str, answer: str, value: float) -> None:
    assert boxed(gold, answer) == value


@pytest.mark.parametrize(
    "response",
    [
        "First 2*234 = 468, which leaves 73.\n\nFinal Answer: **73**",
        "2*234 and so on.\n**Final Answer: 73**",
        "2*234 and so on.\n**Final Answer:** 73",
        "2*234 and so on.\n### Final answer\n\nThe answer is __73__.",
        "2*234 and so on.\n*Answer*: `73`",
    ],
)
def test_r08_bold_markers_do_not_hide_the_answer(response: str) -> None:
    assert written("73", response) == 1.0
    assert written("234", response) == 0.0


@pytest.mark.parametrize("gold", [r"\dfrac{9}{7}", r"$\dfrac{9}{7}$", r"\[\tfrac97\]", r"\frac 9 7", "9/7"])
def test_r09_a_bare_reference_is_read(gold: str) -> None:
    assert boxed(gold, r"\frac{9}{7}") == 1.0
    assert boxed(gold, r"\frac{7}{9}") == 0.0


def test_r09_a_reference_that_cannot_be_read_is_told() -> None:
    score = MATH.score(item(r"\boxed{3}", r"\frac{1}{"))
    assert score.value == 0.0
    assert "the reference does not parse as mathematics" in (score.explanation or "")


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("13", r"\boxed{\text{13}}"),
        (r"\text{13}", r"\boxed{13}"),
        ("13", r"\boxed{\mathbf{13}}"),
        ("E", r"\boxed{\text{E}}"),
        ("E", r"\boxed{E: polygenic inheritance}"),
        ("E", r"\boxed{\textbf{(E)}}"),
        ("E", r"\boxed{\text{(E) polygenic}}"),
        ("E", r"\boxed{\mathrm{E}.}"),
    ],
)
def test_r10_text_wrappers_do_not_hide_the_answer(gold: str, response: str) -> None:
    assert written(gold, response) == 1.0
    if gold == "E":
        assert CHOICE.score(item(response, gold)).value == 1.0
        assert CHOICE.score(item(response, "D")).value == 0.0


@pytest.mark.parametrize("box", ["boxed", "fbox", "framebox"])
def test_r11_every_kind_of_box_is_one(box: str) -> None:
    response = rf"It is \{box}{{\frac{{1}}{{2}}}}"
    assert written(r"\frac{1}{2}", response) == 1.0
    assert EXACT.score(item(response, r"\frac{1}{2}")).value == 1.0


@pytest.mark.parametrize(
    "response",
    [
        "\\boxed{\\langle H\\rangle \\ll \\Delta E} as shown.\nAnswer: D",
        "With \\boxed{E = mc^2} we get\nAnswer: D",
        "\\boxed{A \\cap B} holds, so the answer is D.",
        "\\boxed{C_2H_6}\nThe correct choice is (D)",
    ],
)
def test_r12_a_letter_in_a_formula_is_no_choice(response: str) -> None:
    assert CHOICE.score(item(response, "D")).value == 1.0
    assert written("D", response) == 1.0


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("293", "Answer: m+n = 256+37 = 293"),
        ("293", "The answer is 256 + 37 = 293."),
        ("293", "Answer: $m+n=256+37=\\boxed{293}$"),
        ("12", "Answer: 3 * 4 = 12"),
        ("0.5", "Answer: P = 1/2"),
    ],
)
def test_r13_of_a_calculation_the_result_counts(gold: str, response: str) -> None:
    assert written(gold, response) == 1.0
    assert written("256", response) == 0.0


@pytest.mark.parametrize(
    "response",
    [
        "Mark your solution with \\boxed ",
        "Mark your solution with \\boxed",
        "\\boxed{",
        "\\boxed{7",
        "Use \\boxed{} for the answer",
        "\\boxed \\boxed \\boxed",
        "\\fbox",
        "}\\boxed{",
    ],
)
def test_r14_words_about_boxing_score_nothing_and_break_nothing(response: str) -> None:
    assert written("7", response) == 0.0
    assert EXACT.score(item(response, "7")).value == 0.0
    assert CHOICE.score(item(response, "A")).value == 0.0


@pytest.mark.parametrize(
    ("gold", "answer", "value"),
    [
        (r"50\%", r"50\%", 1.0),
        (r"50\%", "50%", 1.0),
        (r"50\%", "0.5", 1.0),
        (r"50\%", "50", 1.0),
        (r"50\%", r"5\%", 0.0),
        ("35 cm", r"35\text{ cm}", 1.0),
        ("35 cm", "35", 1.0),
        ("35 cm", "35 m", 0.0),
        ("35 cm", r"35\,\mathrm{cm}", 1.0),
        ("35 cm", "35 centimeters", 1.0),
        ("35 cm", "0.35 m", 0.0),
        (r"35\text{ cm}^2", r"35\text{ cm}^3", 0.0),
    ],
)
def test_r15_percent_and_units_follow_the_documented_rule(gold: str, answer: str, value: float) -> None:
    assert boxed(gold, answer) == value


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("12", r"\boxed{１２}"),
        ("A", "（Ａ）。"),
        ("50%", r"\boxed{５０％}"),
        ("-3", r"\boxed{－３}"),
        ("(1,2)", r"\boxed{（１，２）}"),
        ("1/2", r"\boxed{１／２}"),
        ("12", "答案：１２"),
        ("A", "答案是Ａ"),
    ],
)
def test_r16_full_width_text_is_plain_text(gold: str, response: str) -> None:
    assert written(gold, response) == 1.0
    assert written("99" if gold != "A" else "B", response) == 0.0


@pytest.mark.parametrize("response", [r"\boxed{2003^{2002^{2001}}}", "\\(2003^{2002^{2001}}\\) \nAnswer: 008"])
def test_r18_a_power_tower_is_never_worked_out(response: str) -> None:
    assert written("009", response) == 0.0
    assert written("009", "\\(2003^{2002^{2001}}\\) ends so.\nAnswer: 009") == 1.0


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\{1, 2\}", "x < 3"),
        ("x < 3", r"\{1, 2\}"),
        ("x < 3", "5"),
        ("(1, 2)", "x = 3"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", "x < 3"),
        (r"[0, 1) \cup \{5\}", r"\begin{pmatrix}1\end{pmatrix}"),
        ("1", r"\infty - \infty"),
        ("i", "x < i"),
        (r"\emptyset", "x > 1"),
    ],
)
def test_r19_kinds_that_cannot_be_compared_are_unequal_and_raise_nothing(gold: str, answer: str) -> None:
    assert boxed(gold, answer) == 0.0


def test_r23_missing_scores_are_left_out_of_the_mean_and_counted() -> None:
    values = [0.5, None, None, 0.8]
    metrics = reward_metrics([RewardResult(value, (RewardPart("judge", value, 1.0),)) for value in values])
    assert metrics["reward/mean"] == pytest.approx(0.65)
    assert metrics["reward/judge/mean"] == pytest.approx(0.65)
    assert metrics["reward/missing"] == 2.0
    assert all(map(math.isfinite, metrics.values()))


@pytest.mark.parametrize("num_scores", [7, 9, 0, 1])
def test_r24_a_batch_of_the_wrong_length_is_an_error_with_both_lengths(num_scores: int) -> None:
    @reward(batch=8, isolated=False)
    def batched(response: list[str]) -> list[float]:
        return [1.0] * num_scores

    with RewardRunner([], RewardRunnerConfig(), functions=[batched]) as runner:
        results = runner.score_items([replace(item("a"), index=index) for index in range(8)])
    assert [result.total for result in results] == [None] * 8
    assert f"it returned {num_scores} scores for 8 responses" in (results[0].parts[0].error or "")


@pytest.mark.parametrize("reverse", [False, True])
def test_r25_extra_fields_are_the_union_over_samples(reverse: bool) -> None:
    def graded(response: str) -> dict[str, Any]:
        return {"score": 1.0, "acc": 0.5, "pred": "x"} if response == "full" else {"score": 0.0}

    responses = ["full", "bare"][:: -1 if reverse else 1]
    function = reward(isolated=False)(graded)
    with RewardRunner([], RewardRunnerConfig(), functions=[function]) as runner:
        results = runner.score_items([item(response) for response in responses])
    metrics = reward_metrics(results)
    assert (metrics["reward/graded/acc"], metrics["reward/graded/acc/missing"]) == (0.5, 1.0)
    by_response = dict(zip(responses, results, strict=True))
    assert by_response["full"].parts[0].extras == {"acc": 0.5, "pred": "x"}
    assert by_response["bare"].parts[0].extras == {}


@pytest.mark.parametrize(
    ("returned", "value"),
    [
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.array(0.25), 0.25),
        (np.bool_(True), 1.0),
    ],
)
def test_r26_numbers_of_every_kind_are_scores(returned: Any, value: float) -> None:
    assert UserFunction(lambda response: returned, "'f'").score(item("a")).value == value


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("1.0", "it returned '1.0' (str)"),
        ([0.5], "it returned [0.5] (list)"),
        ({"acc": 1.0}, "it returned a dict without 'score' (its keys: 'acc')"),
        (math.inf, "it returned inf"),
        (math.nan, "it returned nan"),
        (np.array([0.5]), "it returned array([0.5]) (ndarray)"),
        ((1.0, 2.0), "it returned (1.0, 2.0) (tuple)"),
        (1 + 2j, "it returned (1+2j) (complex)"),
        ({"score": "1.0"}, "it returned a dict whose 'score' is '1.0' (str)"),
        ({"score": math.nan}, "it returned a dict whose 'score' is nan"),
        ({}, "it returned a dict without 'score' (its keys: no keys)"),
    ],
)
def test_r26_anything_else_is_an_error_that_names_function_and_sample(returned: Any, shown: str) -> None:
    def own(response: str) -> Any:
        return returned

    with RewardRunner([], RewardRunnerConfig(), functions=[reward(isolated=False)(own)]) as runner:
        (result,) = runner.score_items([item("a")])
    assert result.total is None
    assert (result.parts[0].error or "").startswith(f"reward 'own' on sample sample-1, response 0: {shown}")


@pytest.mark.parametrize(
    ("frame", "box"),
    [
        ("pixels", "[320, 180, 640, 360]"),
        ("per_mille", "[250, 250, 500, 500]"),
        ("unit", "[0.25, 0.25, 0.5, 0.5]"),
        ("resized", "[161, 91, 322, 182]"),  # 1280x720 becomes 644x364
    ],
)
def test_r29_a_perfect_box_scores_one_in_its_declared_frame_and_in_no_other(frame: str, box: str) -> None:
    image = ImagePart(ImageRef("0" * 64, 1280, 720))
    sample = Sample("s", (Message("user", (image, TextPart("Where?"))),), "[320, 180, 640, 360]")
    values = {}
    for declared in ("pixels", "per_mille", "unit", "resized"):
        config = IouRewardConfig.model_validate(
            {"frame": declared, "min_pixels": 3136, "max_pixels": 250_000, "factor": 28}
        )
        values[declared] = IouReward(config).score(replace(item(box), sample=sample)).value
    assert values.pop(frame) == pytest.approx(1.0)
    assert all((value or 0.0) < 0.95 for value in values.values()), values


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("gold", "answer", "value"),
    [
        (r"\{1,2\}", r"\{2,1\}", 1.0),
        ("(1,2)", "(2,1)", 0.0),
        ("[0,1)", "(0,1)", 0.0),
        ("D=(0,1)", "D=(0,1.5)", 0.0),
        ("D=(0,1)", "(0,1)", 1.0),
        (r"\{1,2\}", "(1,2)", 0.0),
        (r"\{1,2\}", r"\{1,2,3\}", 0.0),
        (r"\{1,2\}", r"\{1,1,2\}", 1.0),
        ("(1,2,3)", "(1,3,2)", 0.0),
        ("(0,1]", "[0,1)", 0.0),
        (r"(0,1)\cup(2,3)", r"(2,3)\cup(0,1)", 1.0),
        (r"\{(1,2),(3,4)\}", r"\{(3,4),(1,2)\}", 1.0),
        (r"\{(1,2),(3,4)\}", r"\{(2,1),(3,4)\}", 0.0),
    ],
)
def test_r30_order_and_brackets_count_where_they_mean_something(gold: str, answer: str, value: float) -> None:
    assert boxed(gold, answer) == value
