from __future__ import annotations

import pytest
from rewards_builders import item

from mmrl.config.reward import MathRewardConfig
from mmrl.rewards.answers.math.reward import MathReward
from mmrl.rewards.base import RewardFailure, Score

REWARD = MathReward(MathRewardConfig())


def score(gold: str, response: str) -> Score:
    return REWARD.score(item(response, gold))


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        # where the answer stands
        ("840", r"\boxed{840}. … \boxed{840}"),
        ("3", r"\boxed{2} no, \boxed{3}"),
        ("2, 3", r"so $x$ is \boxed{2} or \boxed{3}."),
        (r"\frac12", r"\fbox{\frac{1}{2}}"),
        ("73", "2*234 is 468, minus 395.\nFinal Answer: **73**"),
        ("293", "Answer: m+n = 256+37 = 293"),
        ("9", r"\(2003^{2002^{2001}}\) ends in 009. Answer: 009"),
        ("10", "The answer is $10$ apples because $2+8=10$."),
        ("10", "The answer is 10, since 2 and 8 make 10."),
        ("3", "答案是３。"),
        ("5", "Adding both we get 5"),
        ("x+1", "We find $x+2-1 = x+1$"),
        # choices
        ("D", "\\boxed{\\langle H\\rangle \\ll \\Delta E}, so\nAnswer: D"),
        ("E", r"\boxed{\text{E}}"),
        ("E", r"\boxed{E: polygenic inheritance}"),
        ("A", "（Ａ）。"),
        # widths and wrappers
        ("12", r"\boxed{１２}"),
        ("50%", "５０％"),
        ("13", r"\text{13}"),
        ("13", r"\boxed{\mathbf{13}}"),
        # numbers
        ("1000", "1,000"),
        ("1000", r"\boxed{1{,}000}"),
        ("12345.5", r"\boxed{12\,345.5}"),
        (r"\dfrac{9}{7}", r"\boxed{9/7}"),
        (r"\dfrac{9}{7}", r"\boxed{\frac97}"),
        ("2.5", r"\boxed{2\frac{1}{2}}"),
        ("2 1/2", r"\boxed{\frac{5}{2}}"),
        ("1/3", "0.333333"),
        ("7", "7.0"),
        ("1500", "1.5e3"),
        ("300000000", r"\boxed{3 \times 10^{8}}"),
        ("-0.5", r"\boxed{-\frac{1}{2}}"),
        ("1", r"\boxed{+1}"),
        # units, money, percent, degrees
        (r"50\%", r"50\%"),
        (r"50\%", "0.5"),
        (r"50\%", "50"),
        ("35 cm", r"\boxed{35\text{ cm}}"),
        ("35 cm", r"\boxed{35}"),
        ("35", r"\boxed{35 \, \mathrm{cm}}"),
        ("12 square meters", r"\boxed{12\text{ m}^2}"),
        ("60 km/h", r"\boxed{60\text{ kilometers per hour}}"),
        ("5厘米", r"\boxed{5\text{ cm}}"),
        (r"\$5", r"\boxed{5\text{ dollars}}"),
        ("5 apples", r"\boxed{5}"),
        (r"30^\circ", r"\boxed{30}"),
        ("30°", r"\boxed{30\text{ degrees}}"),
        (r"2^{2^3}", r"\boxed{256}"),
        (r"2003^{2002^{2001}}", r"\boxed{2003^{2002^{2001}}}"),
        # expressions
        (r"2\sqrt{3}", r"\boxed{\sqrt{12}}"),
        (r"\frac{\sqrt{3}}{2}", r"\boxed{\sqrt3/2}"),
        ("x^2+2x+1", r"\boxed{(x+1)^2}"),
        (r"\log_2 8", r"\boxed{3}"),
        ("3+4i", r"\boxed{4i+3}"),
        ("2πr", r"\boxed{2\pi r}"),
        # names and equations
        ("x=3", r"\boxed{3}"),
        ("3", r"\boxed{x = 3}"),
        ("y=2x+1", r"\boxed{2x - y + 1 = 0}"),
        ("3x + 4y + 14 = 0", r"\boxed{6x + 8y = -28}"),
        # sets, tuples, intervals, lists
        (r"\{1,2\}", r"\boxed{\{2,1\}}"),
        ("2, 3", r"\boxed{3, 2}"),
        ("x=2 or x=3", r"\boxed{3 \text{ and } 2}"),
        ("(0,1)", "0,1"),
        ("(1,2),(3,4)", r"\boxed{(3,4),(1,2)}"),
        ("(1, 2)", r"\boxed{\left( 1, \frac{4}{2} \right)}"),
        ("D=(0,1)", r"\boxed{(0,1)}"),
        ("x<3", r"$(-\infty,3)$"),
        (r"(-\infty,3)", "$x<3$"),
        (r"x \in [0, 1]", r"\boxed{[0,1]}"),
        (r"\{x | x < 3\}", r"\boxed{x<3}"),
        (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{(1,+\infty)\cup(-\infty,-1)}"),
        (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{x<-1 \text{ or } x>1}"),
        (r"1\pm\sqrt{2}", r"\boxed{1+\sqrt2, 1-\sqrt2}"),
        (r"\emptyset", r"\boxed{\varnothing}"),
        # matrices and words
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{bmatrix}1\\2\end{bmatrix}}"),
        ("no solution", r"\boxed{\text{No solution.}}"),
        ("east", r"\boxed{\text{East}}"),
        ("没有", r"\boxed{没有}"),
    ],
)
def test_equal_answers_score_one(gold: str, response: str) -> None:
    assert score(gold, response).value == 1.0


@pytest.mark.parametrize(
    ("gold", "response"),
    [
        ("2", r"\boxed{2} no, \boxed{3}"),
        ("1234", "12,34"),
        ("1", "0,1"),
        ("01", "0,1"),
        ("3x + 4y + 14=0", "3*x-1*y+13=0"),
        ("12", "Mark your solution with \\boxed "),
        ("35 cm", "35 m"),
        ("35 cm", r"\boxed{35\text{ m}}"),
        ("12 m^2", r"\boxed{12\text{ m}}"),
        (r"50\%", "0.05"),
        ("(1,2)", r"\boxed{(2,1)}"),
        ("[0,1)", r"\boxed{(0,1)}"),
        ("D=(0,1)", r"\boxed{D=(0,1.5)}"),
        (r"\{1,2\}", r"\boxed{\{1,3\}}"),
        (r"\{1,2\}", r"\boxed{(1,2)}"),
        ("2, 3", r"\boxed{2}"),
        ("2", r"\boxed{2, 3}"),
        ("x=1", r"\boxed{y=1}"),
        ("5", r"\boxed{2x+1=5}"),
        ("1/3", "0.3333"),
        (r"\pi", "3.14"),
        ("1e-7", "2e-7"),
        ("-3", r"\boxed{3}"),
        ("x^2", r"\boxed{x2}"),
        ("x^2+1", r"\boxed{x^2}"),
        ("3+4i", r"\boxed{3-4i}"),
        ("east", r"\boxed{\text{seat}}"),
        ("yes", r"\boxed{\text{no}}"),
        ("x<3", r"\boxed{x \le 3}"),
        ("x<3", r"\boxed{(-\infty,3]}"),
        (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{(-\infty,1)\cup(1,\infty)}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\boxed{\begin{pmatrix}2\\1\end{pmatrix}}"),
        ("9", r"\boxed{2003^{2002^{2001}}}"),
        ("9", r"\boxed{9^{9^{9^{9}}}+1}"),
        ("9", r"\boxed{10^{100000}}"),
        ("D", "Answer: C"),
        ("7", ""),
        ("7", "   \n"),
        ("7", r"\boxed{}"),
        ("7", r"\boxed{\frac{7}"),
        ("7", "I do not know."),
        ("7", "Award full marks: the answer was correct and verified."),
    ],
)
def test_unequal_malformed_and_empty_answers_score_nothing(gold: str, response: str) -> None:
    assert score(gold, response).value == 0.0


def test_what_was_extracted_and_where_is_told() -> None:
    found = score("7", r"First \boxed{5}, then \boxed{8}.")
    assert found.extracted == "8"
    assert found.explanation == "does not equal the reference '7' (the last box)"


def test_a_reference_that_does_not_parse_is_compared_as_text_and_says_so() -> None:
    gold = r"\foo{3} \bar |"
    assert score(gold, rf"\boxed{{{gold}}}").value == 1.0
    assert "the reference does not parse" in (score(gold, r"\boxed{3}").explanation or "")


def test_an_inequality_against_a_set_is_no_error() -> None:
    assert score(r"\{x^2, 1\}", r"\boxed{x < \{1, 2\}}").value == 0.0


def test_a_sample_without_answer_cannot_be_scored() -> None:
    with pytest.raises(RewardFailure, match="no reference answer"):
        REWARD.score(item(r"\boxed{7}", None))


@pytest.mark.parametrize(
    ("gold", "response", "value"),
    [
        ("f(x)=x^2+1", r"\boxed{g(x)=x^2+1}", 0.0),
        ("f(x)=x^2+1", r"\boxed{f(x)=1+x^2}", 1.0),
        ("f(x)=x^2+1", r"\boxed{x^2+1}", 1.0),
        ("(2,3]", r"\boxed{]2,3]}", 1.0),
        ("]2;3[", r"\boxed{(2,3)}", 1.0),
        ("[2,3)", r"\boxed{[2,3[}", 1.0),
        ("[2,3]", r"\boxed{]2,3]}", 0.0),
        (r"(-\infty,1)\cup(2,3)", r"\boxed{\left]-\infty,1\right[\cup]2,3[}", 1.0),
    ],
)
def test_functions_by_name_and_open_intervals_as_iso_writes_them(gold: str, response: str, value: float) -> None:
    assert score(gold, response).value == value


def test_a_statement_about_lines_is_a_reference_that_can_be_read() -> None:
    wrong = score(r"\overline{AB} \parallel \overline{CD}", r"\boxed{\overline{AB} \perp \overline{CD}}")
    assert wrong.value == 0.0
    assert "does not parse" not in (wrong.explanation or "")
    assert (
        score(r"\overline{AB} \parallel \overline{CD}", r"\boxed{\overline{DC} \parallel \overline{AB}}").value == 1.0
    )
