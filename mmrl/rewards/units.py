"""Units of measurement as people write them behind a number, and one name for each."""

from __future__ import annotations

import re

from mmrl.rewards.latex import strip_text_commands

_ALIASES = {
    "m": "meter metre meters metres", "cm": "centimeter centimetre centimeters centimetres",
    "mm": "millimeter millimetre millimeters millimetres", "km": "kilometer kilometre kilometers kilometres",
    "um": "micrometer micrometre micron μm", "nm": "nanometer nanometre",
    "in": "inch inches", "ft": "foot feet", "yd": "yard yards", "mi": "mile miles",
    "g": "gram grams gm", "kg": "kilogram kilograms kgs", "mg": "milligram milligrams", "lb": "pound pounds lbs",
    "oz": "ounce ounces", "t": "ton tons tonne tonnes",
    "s": "sec secs second seconds", "min": "mins minute minutes", "h": "hr hrs hour hours", "ms": "millisecond",
    "day": "days d", "week": "weeks", "month": "months", "year": "years yr yrs",
    "L": "l liter litre liters litres", "mL": "ml milliliter millilitre milliliters millilitres",
    "gal": "gallon gallons", "°": "deg degree degrees ^{\\circ}", "°C": "^{\\circ}C celsius",
    "°F": "^{\\circ}F fahrenheit", "K": "kelvin kelvins", "rad": "radian radians",
    "N": "newton newtons", "J": "joule joules", "kJ": "kilojoule kilojoules", "W": "watt watts", "kW": "kilowatt",
    "V": "volt volts", "A": "amp amps ampere amperes", "Ω": "ohm ohms \\Omega", "Hz": "hertz", "Pa": "pascal pascals",
    "mol": "mole moles", "mph": "", "kph": "kmh", "dollar": "dollars usd", "cent": "cents", "acre": "acres",
    "ha": "hectare hectares", "%": "\\%",
}  # fmt: skip
_CHINESE = {
    "米": "m", "厘米": "cm", "千米": "km", "公里": "km", "千克": "kg", "公斤": "kg", "克": "g", "秒": "s",
    "分钟": "min", "小时": "h", "天": "day", "度": "°", "元": "yuan",
}  # fmt: skip
_NAMES = {
    **{name: name for name in _ALIASES},
    **{alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()},
    **_CHINESE,
}
_NUMBER_END = r"(?P<value>.*?(?:[\d}\])]|\\pi))"
_WRAPPED = re.compile(_NUMBER_END + r"\s*(?P<unit>\\text\{[^{}]*\}(?:\s*\^\{?-?\d\}?)?)$")
_SIGN = re.compile(_NUMBER_END + r"\s*(?P<unit>\\%|\^\{\\circ\}\s*(?:\\text\{\s*)?[CF]?\s*\}?)$")
_PLAIN = re.compile(
    _NUMBER_END + r"(?P<space>\s*)(?P<unit>[A-Za-zμΩ\u4e00-\u9fff][A-Za-z ./·\u4e00-\u9fff]*(?:\^\{?\d\}?|\d)?)$"
)
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
    match = _PLAIN.match(tidied)
    if match is None or _HAS_VARIABLE.search(_COMMANDS.sub("", match["value"])):
        return tidied, None
    name = unit_name(match["unit"])
    letters = re.sub(r"[^A-Za-z\u4e00-\u9fff]", "", match["unit"])
    is_known = is_known_unit(name)
    if (is_known and (match["space"] or len(letters) > 1)) or (match["space"] and len(letters) > 2):
        return match["value"].strip(), name
    return tidied, None


def unit_name(text: str) -> str:
    """`square centimetres`, `cm²`, `\\text{cm}^2` and `sq. cm` as `cm^2`; `km per hour` as `km/h`."""
    text = re.sub(r"\{(-?\d)\}", r"\1", strip_text_commands(text).replace("^{\\circ}", "°")).strip().rstrip(".")
    parts = re.split(r"\s*/\s*|\s+per\s+", text)
    return "/".join(_single_name(part) for part in parts)


def is_known_unit(name: str) -> bool:
    """Whether every factor of a unit's name is in the table."""
    return all(re.sub(r"\^?-?\d$", "", part) in _NAMES for part in name.split("/"))


def _single_name(text: str) -> str:
    power = ""
    if match := re.match(r"(?i)(square|sq\.?|cubic|cu\.?)\s+(.*)$", text):
        power, text = ("^2" if match[1].lower().startswith("s") else "^3"), match[2]
    elif match := re.match(r"(.*?)\s*\^?(-?\d)$", text):
        power, text = f"^{match[2]}", match[1]
    text = text.strip()
    return (_NAMES.get(text) or _NAMES.get(text.lower()) or text.lower()) + power
