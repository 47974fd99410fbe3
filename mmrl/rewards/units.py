"""Units of measurement as people write them behind a number, and one name for each."""

from __future__ import annotations

import re
from fractions import Fraction

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
    "mol": "mole moles", "mph": "", "kph": "kmh", "am": "a.m", "pm": "p.m", "dollar": "dollars usd", "cent": "cents",
    "yuan": "rmb", "jiao": "", "dm": "", "jin": "",
    "acre": "acres", "ha": "hectare hectares", "%": "\\%",
}  # fmt: skip
_CHINESE = {
    "米": "m", "厘米": "cm", "千米": "km", "公里": "km", "千克": "kg", "公斤": "kg", "克": "g", "秒": "s",
    "分钟": "min", "分": "min", "小时": "h", "时": "h", "天": "day", "周": "week", "年": "year",
    "毫米": "mm", "分米": "dm", "微米": "um", "纳米": "nm", "英寸": "in", "英尺": "ft", "英里": "mi", "毫克": "mg",
    "吨": "t", "斤": "jin", "毫秒": "ms", "升": "L", "毫升": "mL", "公顷": "ha", "度": "°", "摄氏度": "°C",
    "弧度": "rad", "牛": "N", "牛顿": "N", "焦": "J", "焦耳": "J", "千焦": "kJ", "瓦": "W", "千瓦": "kW", "伏": "V",
    "伏特": "V", "安": "A", "安培": "A", "欧": "Ω", "欧姆": "Ω", "赫兹": "Hz", "帕": "Pa", "摩尔": "mol", "元": "yuan",
    "美元": "dollar", "角": "jiao",
}  # fmt: skip
_NAMES = {
    **{name: name for name in _ALIASES},
    **{alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()},
    **_CHINESE,
}
_MEASURES: dict[str, dict[str, str]] = {
    "length": {
        "m": "1", "cm": "1e-2", "mm": "1e-3", "km": "1e3", "um": "1e-6", "nm": "1e-9", "in": "0.0254", "ft": "0.3048",
        "yd": "0.9144", "mi": "1609.344", "dm": "0.1",
    },
    "mass": {"kg": "1", "g": "1e-3", "mg": "1e-6", "t": "1e3", "lb": "0.45359237", "oz": "0.028349523125",
        "jin": "0.5",
    },
    "time": {"s": "1", "ms": "1e-3", "min": "60", "h": "3600", "day": "86400", "week": "604800"},
    "energy": {"J": "1", "kJ": "1e3"},
    "power": {"W": "1", "kW": "1e3"},
    "money": {"dollar": "1", "cent": "1e-2"},
    "money of China": {"yuan": "1", "jiao": "1e-1"},
    "share": {"%": "1e-2"},
}  # fmt: skip
_COMPOUNDS = {
    "L": ("length", 3, "1e-3"), "mL": ("length", 3, "1e-6"), "gal": ("length", 3, "0.003785411784"),
    "ha": ("length", 2, "1e4"), "acre": ("length", 2, "4046.8564224"),
}  # fmt: skip
_RATIOS = {"mph": "mi/h", "kph": "km/h"}
_NUMBER_END = r"(?P<value>.*?(?:[\d}\])]|\\pi))"
_WRAPPED = re.compile(
    _NUMBER_END + r"\s*(?P<unit>(?:\\text\{(?:[^{}]|\{[^{}]*\})*\}(?:\s*\^\{?-?\d\}?)?(?:\s|/|\\cdot)*)+)$"
)
_SIGN = re.compile(_NUMBER_END + r"\s*(?P<unit>\\%|\^\{\\circ\}\s*(?:[CF]|\\text\{\s*[CF]\s*\})?)$")
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
    if re.fullmatch(r"[\u4e00-\u9fff /]+", match["unit"]):
        return match["value"].strip(), name  # Chinese counts with measure words: 3个, 24元
    if (is_known and (match["space"] or len(letters) > 1)) or (match["space"] and len(letters) > 2):
        return match["value"].strip(), name
    return tidied, None


def split_glued_unit(tidied: str, unit: str) -> tuple[str, str | None]:
    """The number and `unit` where it stands right behind a plain number, as in `5m`; elsewhere the text as it is."""
    match = re.fullmatch(r"(?P<value>[+-]?[\d.,]+)\s*(?P<unit>[A-Za-z]+(?:\^\{?\d\}?)?)", tidied)
    is_it = match is not None and unit_name(match["unit"]) == unit and is_known_unit(unit)
    return (match["value"], unit) if match is not None and is_it else (tidied, None)


def unit_name(text: str) -> str:
    """`square centimetres`, `cm²`, `\\text{cm}^2` and `sq. cm` as `cm^2`; `km per hour` as `km/h`."""
    text = re.sub(r"\{(-?\d)\}", r"\1", strip_text_commands(text).replace("^{\\circ}", "°")).strip().rstrip(".")
    text = re.sub(r"°\s+", "°", text.replace("\\cdot", "·"))
    parts = re.split(r"\s*/\s*|\s+per\s+|每", text)
    return "/".join(map(_product_name, parts))


def is_known_unit(name: str) -> bool:
    """Whether every factor of a unit's name is in the table."""
    return all(re.sub(r"\^?-?\d$", "", part) in _NAMES for part in re.split("[/·]", name))


def conversion_factor(unit: str, wanted: str) -> Fraction | None:
    """What a value in `unit` is multiplied by to be in `wanted`, both being names as `unit_name` gives them; None where
    they do not measure the same thing, or are not in the table."""
    if unit == wanted:
        return Fraction(1)
    one, other = _measure(unit), _measure(wanted)
    if one is None or other is None or one[0] != other[0]:
        return None
    return one[1] / other[1]


def _measure(name: str) -> tuple[dict[str, int], Fraction] | None:
    """Powers of the quantities that a unit measures, and its size in their base units."""
    powers: dict[str, int] = {}
    size = Fraction(1)
    parts = enumerate(_RATIOS.get(name, name).split("/"))
    factors = [(position, factor) for position, part in parts for factor in part.split("·")]
    for position, text in factors:
        match = re.fullmatch(r"(.*?)(?:\^(-?\d))?", text)
        assert match is not None
        factor = _factor(match[1])
        if factor is None:
            return None
        quantity, own_power, own_size = factor
        power = int(match[2] or 1) * (1 if position == 0 else -1)
        powers[quantity] = powers.get(quantity, 0) + own_power * power
        size *= own_size**power
    return {quantity: power for quantity, power in powers.items() if power}, size


def _factor(name: str) -> tuple[str, int, Fraction] | None:
    if name in _COMPOUNDS:
        quantity, power, size = _COMPOUNDS[name]
        return quantity, power, Fraction(size)
    for quantity, sizes in _MEASURES.items():
        if name in sizes:
            return quantity, 1, Fraction(sizes[name])
    return None


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
    return (_NAMES.get(text) or _NAMES.get(text.lower()) or text.lower()) + power
