from __future__ import annotations

from fractions import Fraction

import pytest
from rewards_builders import item

from mmrl.config.reward import NumberRewardConfig
from mmrl.errors import ConfigError
from mmrl.rewards.answers.number import NumberReward, Quantity, read_quantity
from mmrl.rewards.answers.units import conversion_factor
from mmrl.rewards.base import RewardFailure


def value(answer: str, response: str, **settings: object) -> float | None:
    return NumberReward(NumberRewardConfig.model_validate(settings)).score(item(response, answer)).value


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("7", r"\boxed{7}"),
        ("7", r"\boxed{７.0}"),
        ("1000", r"\boxed{1,000}"),
        ("0.5", r"\boxed{\frac{1}{2}}"),
        ("2/3", r"\boxed{0.6666667}"),
        ("300", r"\boxed{3 \times 10^{2}}"),
        ("-4", "The answer is -4."),
        ("12", "So there are 5 + 7 = 12"),
        ("5", r"\boxed{x = 5}"),
        ("35 cm", r"\boxed{35}"),
        ("35 cm", r"\boxed{0.35\text{ m}}"),
        ("35 cm", r"\boxed{350 mm}"),
        ("1 h", "The answer is 60 minutes."),
        ("36 km/h", r"\boxed{10\text{ m/s}}"),
        ("2 m^2", r"\boxed{20000\text{ cm}^2}"),
        ("1 L", r"\boxed{1000\text{ cm}^3}"),
        ("1 mile", r"\boxed{1609.344\text{ meters}}"),
        ("50%", r"\boxed{50\%}"),
        ("0.5", r"\boxed{50\%}"),
        ("5 apples", r"\boxed{5}"),
        ("5 dollars", r"\boxed{500\text{ cents}}"),
        ("5厘米", r"\boxed{50 mm}"),
    ],
)
def test_the_same_quantity_scores_one(answer: str, response: str) -> None:
    assert value(answer, response) == 1.0


@pytest.mark.parametrize(
    ("answer", "response"),
    [
        ("7", r"\boxed{8}"),
        ("7", ""),
        ("7", r"\boxed{}"),
        ("7", r"\boxed{7"),
        ("7", r"\boxed{seven apples}"),
        ("7", r"\boxed{7, 8}"),
        ("7", "many"),
        ("35 cm", r"\boxed{35\text{ m}}"),
        ("35 cm", r"\boxed{35\text{ kg}}"),
        ("2 m^2", r"\boxed{200\text{ cm}^2}"),
        ("2 m^2", r"\boxed{2\text{ m}}"),
        ("1234", "12,34"),
        ("-3", r"\boxed{3}"),
        ("7", r"\boxed{" + "7" * 100_000 + "}"),
    ],
)
def test_another_quantity_scores_nothing(answer: str, response: str) -> None:
    assert value(answer, response) == 0.0


@pytest.mark.parametrize(
    ("response", "settings", "expected"),
    [
        (r"\boxed{104}", {"relative": 0.05}, 1.0),
        (r"\boxed{106}", {"relative": 0.05}, 0.0),
        (r"\boxed{105}", {"relative": 0.05}, 1.0),
        (r"\boxed{102}", {"absolute": 2.0}, 1.0),
        (r"\boxed{103}", {"absolute": 2.0}, 0.0),
        (r"\boxed{100.0001}", {}, 1.0),
        (r"\boxed{100.001}", {}, 0.0),
        (r"\boxed{100.0001}", {"relative": 0.0}, 0.0),
    ],
)
def test_tolerances_are_kept_exactly(response: str, settings: dict[str, float], expected: float) -> None:
    assert value("100", response, **settings) == expected


def test_a_unit_for_references_without_one_converts_answers() -> None:
    assert value("35", r"\boxed{0.35\text{ m}}", unit="centimeters") == 1.0
    assert value("35", r"\boxed{35}", unit="cm") == 1.0


def test_a_missing_unit_can_be_refused() -> None:
    assert value("35 cm", r"\boxed{35}", require_unit=True) == 0.0
    assert value("35 cm", r"\boxed{35\text{ cm}}", require_unit=True) == 1.0


def test_the_explanation_tells_the_difference() -> None:
    score = NumberReward(NumberRewardConfig()).score(item(r"\boxed{0.36\text{ m}}", "35 cm"))
    assert (score.extracted, score.explanation) == (r"0.36\text{ m}", "off by 1 cm (the last box)")


def test_a_reference_that_is_no_number_cannot_be_compared_with() -> None:
    with pytest.raises(RewardFailure, match="the reference answer 'east' is not a number"):
        value("east", r"\boxed{7}")


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ConfigError, match="unit 'furlongs' of reward number is not known"):
        NumberReward(NumberRewardConfig(unit="furlongs"))


def test_quantities_are_read_exactly() -> None:
    assert read_quantity("x = 2.5 kilograms") == Quantity(Fraction(5, 2), "kg")
    assert read_quantity(r"2\sqrt{3}") is None


@pytest.mark.parametrize(
    ("unit", "wanted", "factor"),
    [
        ("km/h", "m/s", Fraction(5, 18)),
        ("mph", "km/h", Fraction("1.609344")),
        ("ha", "m^2", Fraction(10**4)),
        ("s", "m", None),
        ("K", "s", None),
    ],
)
def test_units_convert_where_they_measure_the_same(unit: str, wanted: str, factor: Fraction | None) -> None:
    assert conversion_factor(unit, wanted) == factor
