"""The reward `number`: the answer is the reference number within a tolerance, whatever unit it is given in."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from mmrl.config.reward import NumberRewardConfig
from mmrl.errors import ConfigError
from mmrl.rewards.answers.find import find_answer
from mmrl.rewards.answers.math.answer import read_answer
from mmrl.rewards.answers.numbers import read_number
from mmrl.rewards.answers.units import converted, is_known_unit, split_any_glued_unit, split_unit, unit_name
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score

_MAX_CHARACTERS = 500


@dataclass(frozen=True)
class Quantity:
    """A number and the unit behind it, which may be words that are no unit (`5 apples`); None for nothing behind it."""

    value: Fraction
    unit: str | None


class NumberReward(Reward):
    """1 if |answer - reference| <= max(absolute, relative · |reference|), else 0.

    An answer in another unit of the same kind is converted; one in a unit of another kind is wrong; one without a unit
    is taken to be in the reference's, unless `require_unit` is set. Where only one side has a percent sign, its number
    may stand for itself or for its hundredth: `50 %` is 50 and 0.5.
    """

    def __init__(self, config: NumberRewardConfig) -> None:
        self._absolute, self._relative = Fraction(config.absolute), Fraction(str(config.relative))
        self._unit = unit_name(config.unit) if config.unit is not None else None
        if self._unit is not None and not is_known_unit(self._unit):
            raise ConfigError(
                f"unit {config.unit!r} of reward {config.part_name} is not known; use one such as cm or kg"
            )
        self._require_unit = config.require_unit

    def score(self, item: RewardItem) -> Score:
        reference = read_quantity(item.answer)
        if reference is None:
            raise RewardFailure(f"the reference answer {item.answer!r} is not a number")
        wanted = reference.unit or self._unit
        found = find_answer(item.response)
        if found is None:
            return Score(0.0, None, "no answer in the response")
        text, place = found
        quantity = read_quantity(text)
        if quantity is None:
            return Score(0.0, text, f"not a number ({place})")
        differences = [abs(value - reference.value) for value in self._readings(quantity, wanted)]
        if not differences:
            return Score(0.0, text, f"in {quantity.unit or 'no unit'}, not in {wanted} ({place})")
        difference = min(differences)
        is_near = difference <= max(self._absolute, self._relative * abs(reference.value))
        return Score(float(is_near), text, f"off by {_shown(difference)} {wanted or ''}".rstrip() + f" ({place})")

    def _readings(self, quantity: Quantity, wanted: str | None) -> list[Fraction]:
        """What the answer may be in the wanted unit; nothing where it is in none that measures the same."""
        if quantity.unit is None and wanted is not None and self._require_unit:
            return []
        if (quantity.unit, wanted) == ("%", None):
            return [quantity.value, quantity.value / 100]
        if (quantity.unit, wanted) == (None, "%"):
            return [quantity.value, quantity.value * 100]
        value = converted(quantity.value, quantity.unit, wanted)
        return [] if value is None else [value]


def _shown(number: Fraction) -> str:
    """Six digits of a number that may be larger than any float."""
    try:
        return f"{float(number):.6g}"
    except OverflowError:
        return f"more than 1e{len(str(int(number))) - 1}"


def read_quantity(text: str) -> Quantity | None:
    """The number that an answer is, with its unit; `x = 5 cm` is 5 cm. None for expressions and all else."""
    if len(text) > _MAX_CHARACTERS:
        return None
    answer = read_answer(text)
    if answer.kind != "value":
        return None
    value, unit = split_unit(answer.text)
    if unit is None:
        value, unit = split_any_glued_unit(answer.text)
    number = read_number(value)
    return None if number is None else Quantity(number.value, unit)
