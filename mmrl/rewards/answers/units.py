"""Units of measurement as people write them behind a number, and one name for each."""

from __future__ import annotations

import re
from fractions import Fraction

from mmrl.rewards.answers.latex import strip_text_commands
from mmrl.rewards.answers.unit_tables import MEASURES, NAMES, ZEROS

_COUNTS = ("unit", "square unit", "cubic unit", "units^2", "units^3", "unit^2", "unit^3", "个")
_NUMBER_END = r"(?P<value>.*?(?:[\d}\])]|\\pi))"
_WRAPPED = re.compile(
    _NUMBER_END + r"\s*(?P<unit>(?:\\text\{(?:[^{}]|\{[^{}]*\})*\}(?:\s*\^\{?-?\d\}?)?(?:\s|/|\\cdot)*)+)$"
)
_SIGN = re.compile(_NUMBER_END + r"\s*(?P<unit>\\%|\^\{\\circ\}\s*(?:[CF]|\\text\{\s*[CF]\s*\})?)$")
_LETTER = r"A-Za-zμΩ\u4e00-\u9fff"
_PLAIN = re.compile(
    _NUMBER_END + rf"(?P<space>\s*)(?P<unit>[{_LETTER}][{_LETTER} ./·]*(?:\^\{{?-?\d\}}?[{_LETTER} ./·]*)*\d?)$"
)
_POWER_INSIDE = re.compile(r"\^\{?-?\d\}?.*[A-Za-z]|\^\{?-")
_MICRO = re.compile(r"\\mu\s*(?=[A-Za-z])")
_OHM = re.compile(r"\\Omega(?![a-zA-Z])")
_DOT = re.compile(r"(?<=[A-Za-zΩ}])\s*\\cdot\s*(?=[A-Za-zμΩ])")
_HAS_VARIABLE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]")
_COMMANDS = re.compile(r"\\[a-zA-Z]+|\\text\{[^{}]*\}")


def split_unit(tidied: str) -> tuple[str, str | None]:
    """The number and the unit behind it: the unit's one name where it is known, else the words as they are; None where
    there is no unit.

    A single letter is a unit only upright (`5\\text{ m}`) or after a space (`5 m`), and nothing is one behind an
    expression with variables: `5m` and `2x m` stay products.
    """
    for pattern in (_WRAPPED, _SIGN):
        if match := pattern.match(tidied):
            return match["value"].strip(), unit_name(match["unit"])
    match = _PLAIN.match(_DOT.sub("·", _OHM.sub("Ω", _MICRO.sub("μ", tidied))))
    if match is None or _HAS_VARIABLE.search(_COMMANDS.sub("", match["value"])):
        return tidied, None
    name = unit_name(match["unit"])
    letters = re.sub(r"[^A-Za-zμΩ\u4e00-\u9fff]", "", match["unit"])
    is_known = is_known_unit(name)
    if re.fullmatch(r"[\u4e00-\u9fff /]+", match["unit"]):
        return match["value"].strip(), name  # Chinese counts with measure words: 3个, 24元
    is_word = bool(match["space"]) and len(letters) > 2 and _POWER_INSIDE.search(match["unit"]) is None
    if (is_known and (match["space"] or len(letters) > 1)) or is_word:
        return match["value"].strip(), name
    return tidied, None


def split_glued_unit(tidied: str, unit: str) -> tuple[str, str | None]:
    """The number and `unit` where it stands right behind a plain number, as in `5m`; elsewhere the text as it is."""
    value, found = split_any_glued_unit(tidied)
    return (value, unit) if found == unit else (tidied, None)


def split_any_glued_unit(tidied: str) -> tuple[str, str | None]:
    """The number and the known unit right behind it, whichever it is: `5V`."""
    match = re.fullmatch(r"(?P<value>[+-]?[\d.,]+)\s*(?P<unit>[A-Za-zΩ]+(?:\^\{?\d\}?)?)", tidied)
    unit = unit_name(match["unit"]) if match is not None else ""
    return (match["value"], unit) if match is not None and is_known_unit(unit) else (tidied, None)


def unit_name(text: str) -> str:
    """`square centimetres`, `cm²`, `\\text{cm}^2` and `sq. cm` as `cm^2`; `km per hour` as `km/h`."""
    text = re.sub(r"\{(-?\d)\}", r"\1", strip_text_commands(text).replace("^{\\circ}", "°")).strip().rstrip(".")
    text = re.sub(r"°\s+(?=[A-Z])", "°", re.sub(r"\s*\\cdot\s*", "·", _OHM.sub("Ω", _MICRO.sub("μ", text))))
    text = re.sub(r"(?i)(?:°|\bdeg(?:ree)?s?)\s+(?=celsius|fahrenheit|kelvin)", "", text)
    text = re.sub(r"\bdeg(?:ree)?s?\s+(?=[CF]$)", "°", text).replace("per cent", "%")
    parts = re.split(r"\s*/\s*|\s+per\s+|每", text)
    return "/".join(map(_product_name, parts))


def is_known_unit(name: str) -> bool:
    """Whether every factor of a unit's name is in the table."""
    return all(re.sub(r"\^?-?\d$", "", part) in NAMES for part in re.split("[/·]", name))


def units_agree(unit: str | None, wanted: str | None) -> bool:
    """Whether numbers with these units, names as `unit_name` gives them, may be compared as they are: the same unit, or
    none on one side. Words that are not known must be the same words, but for a plural's s."""
    if unit is None or wanted is None or _singular(unit) in _COUNTS or _singular(wanted) in _COUNTS:
        return True
    return _singular(unit) == _singular(wanted) or conversion_factor(unit, wanted) == 1


def converted(value: Fraction, unit: str | None, wanted: str | None) -> Fraction | None:
    """A value with a unit in another unit; None where they do not measure the same thing."""
    if unit in ZEROS and wanted in ZEROS and unit != wanted:
        assert unit is not None
        assert wanted is not None
        return (value * MEASURES[unit][0] + ZEROS[unit] - ZEROS[wanted]) / MEASURES[wanted][0]
    if units_agree(unit, wanted):
        return value
    factor = conversion_factor(unit, wanted) if unit is not None and wanted is not None else None
    return value * factor if factor is not None else None


def conversion_factor(unit: str, wanted: str) -> Fraction | None:
    """What a value in `unit` is multiplied by to be in `wanted`, both being names as `unit_name` gives them; None where
    they do not measure the same thing, are not in the table, or have different zeros."""
    if unit == wanted:
        return Fraction(1)
    one, other = _measure(unit), _measure(wanted)
    if one is None or other is None or one[1] != other[1] or (unit in ZEROS and wanted in ZEROS):
        return None
    return one[0] / other[0]


def _measure(name: str) -> tuple[Fraction, dict[str, int]] | None:
    """The size of a unit in base units, and the powers of the quantities that it measures."""
    powers: dict[str, int] = {}
    size = Fraction(1)
    factors = [(place, factor) for place, part in enumerate(name.split("/")) for factor in part.split("·")]
    for place, text in factors:
        match = re.fullmatch(r"(.*?)(?:\^(-?\d))?", text)
        assert match is not None
        if match[1] not in MEASURES:
            return None
        own_size, own_powers = MEASURES[match[1]]
        power = int(match[2] or 1) * (1 if place == 0 else -1)
        for quantity, own_power in own_powers.items():
            powers[quantity] = powers.get(quantity, 0) + own_power * power
        size *= own_size**power
    return size, {quantity: power for quantity, power in powers.items() if power}


def _singular(name: str) -> str:
    return name if is_known_unit(name) or len(name) < 4 else name.removesuffix("s")


def _product_name(text: str) -> str:
    """`N m` and `kg·m` as `N·m` and `kg·m`, where every factor is known; other words stay together."""
    factors = [_single_name(factor) for factor in re.split(r"[\s·*]+", text.strip()) if factor]
    return "·".join(factors) if len(factors) > 1 and all(map(is_known_unit, factors)) else _single_name(text)


def _single_name(text: str) -> str:
    power = ""
    if match := re.match(r"(平方|立方)(.*)$", text):
        power, text = ("^2" if match[1] == "平方" else "^3"), match[2]
    elif match := re.match(r"(?i)(square|sq\.?|cubic|cu\.?)\s+(.*)$", text):
        power, text = ("^2" if match[1].lower().startswith("s") else "^3"), match[2]
    elif match := re.match(r"(.*?)\s*\^?(-?\d)$", text):
        power, text = f"^{match[2]}", match[1]
    text = text.strip()
    is_plain_word = text.istitle() or (text.isupper() and len(text) > 3)
    plain = text.lower() if is_plain_word and len(text) > 3 else text
    return NAMES.get(text, NAMES.get(plain, plain)) + power
