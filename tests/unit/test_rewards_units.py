"""Units behind numbers, in the rewards `number` and `math` alike."""

from __future__ import annotations

import pytest
from rewards_builders import item

from mmrl.config.reward import MathRewardConfig, NumberRewardConfig
from mmrl.rewards.answers.math.reward import MathReward
from mmrl.rewards.answers.number import NumberReward

NUMBER, MATH = NumberReward(NumberRewardConfig()), MathReward(MathRewardConfig())


def values(gold: str, answer: str) -> tuple[float | None, float | None]:
    return tuple(reward.score(item(rf"\boxed{{{answer}}}", gold)).value for reward in (NUMBER, MATH))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5 atm", "5 Pa"), ("3 mol", "3 mmol"), ("7 Hz", "7 kHz"), ("5 bar", "5 psi"), ("5 cal", "5 J"),
        ("5 MPa", "5 mPa"), ("3 T", "3 t"), ("1 GB", "1 MB"), ("5 μF", "5 nF"), ("5 V", "5 A"), ("25 °C", "25 K"),
        ("9.8 m/s^2", "9.8 m/s"), ("3 dB", "3 V"), ("5 apples", "5 pears"), ("5 widgets", "5 cm"), ("24元", "24角"),
    ],
)  # fmt: skip
def test_the_same_number_of_another_unit_is_wrong(gold: str, answer: str) -> None:
    assert values(gold, answer) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5 \u00b5m", "5 \u03bcm"), (r"5 \mu m", "5 um"), ("5 kPa", r"5\text{ kilopascals}"), ("5 apples", "5 apple"),
        ("5 apples", "5"), ("5", "5 apples"), ("5 N·m", r"5\text{ N}\cdot\text{m}"), ("9.8 m/s^2", "9.8 m s^{-2}"),
        ("5 Ω", r"5 \Omega"), ("5 V", "5V"), ("20 degrees Celsius", "20 °C"), ("3 dB", "3 decibels"),
        ("2 Apples", "2 apples"), ("24 square units", "24 cm^2"),
    ],
)  # fmt: skip
def test_one_unit_has_many_spellings(gold: str, answer: str) -> None:
    assert values(gold, answer) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5 bar", "500 kPa"), ("3 mol", "3000 mmol"), ("25 °C", "298.15 K"), ("25 °C", "77 °F"), ("77 °F", "25 °C"),
        ("1 GB", "1000 MB"), ("1 GiB", "1024 MiB"), ("180°", "3.14159265 rad"), ("1 kWh", "3.6 MJ"),
        ("1 eV", "1.602176634e-19 J"), ("5 kΩ", r"5000\ \Omega"), ("1 kcal", "4184 J"),
    ],
)  # fmt: skip
def test_number_converts_within_one_quantity(gold: str, answer: str) -> None:
    assert values(gold, answer)[0] == 1.0


@pytest.mark.parametrize(
    ("gold", "answer", "value"),
    [("50 %", "0.5", 1.0), ("0.5", "50 %", 1.0), ("50 %", "50", 1.0), ("50", "50 %", 1.0), ("50 %", "5", 0.0),
     ("50 %", "50 cm", 0.0), ("50 %", "0.5 %", 0.0)],
)  # fmt: skip
def test_a_percentage_is_its_number_or_a_hundredth_in_both_rewards(gold: str, answer: str, value: float) -> None:
    assert values(gold, answer) == (value, value)


@pytest.mark.parametrize("answer", ["1e400", "9" * 400, "1" + "0" * 399])
def test_a_number_larger_than_any_float_is_wrong_and_no_failure(answer: str) -> None:
    score = NUMBER.score(item(rf"\boxed{{{answer}}}", "7"))
    assert score.value == 0.0
    assert score.explanation
