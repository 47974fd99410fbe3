"""The units that are known: their spellings, and what each measures in base units."""

from __future__ import annotations

import math
from fractions import Fraction

Measure = tuple[Fraction, dict[str, int]]
"""The size of a unit in base units, and the powers of the base quantities that it measures."""

_ALIASES = {
    "m": "meter metre meters metres", "cm": "CM", "km": "KM Km", "mm": "", "um": "micron microns",
    "in": "inch inches", "ft": "foot feet", "yd": "yard yards", "mi": "mile miles",
    "g": "gram grams gm", "kg": "kgs KG Kg", "lb": "pound pounds lbs", "oz": "ounce ounces",
    "t": "ton tons tonne tonnes",
    "s": "sec secs second seconds", "min": "mins minute minutes", "h": "hr hrs hour hours",
    "day": "days d", "week": "weeks", "month": "months", "year": "years yr yrs",
    "L": "l liter litre liters litres", "mL": "ml", "gal": "gallon gallons",
    "°": "deg degree degrees ^{\\circ}", "°C": "^{\\circ}C celsius", "°F": "^{\\circ}F fahrenheit",
    "K": "kelvin kelvins", "rad": "radian radians",
    "N": "newton newtons", "J": "joule joules", "W": "watt watts", "V": "volt volts", "A": "amp amps ampere amperes",
    "Ω": "ohm ohms \\Omega", "F": "farad farads", "T": "tesla teslas", "H": "henry henries henrys",
    "C": "coulomb coulombs", "Hz": "hertz hz", "MHz": "Mhz", "GHz": "Ghz", "kHz": "khz", "Pa": "pascal pascals",
    "bar": "bars", "atm": "atmosphere atmospheres", "psi": "PSI", "mmHg": "", "torr": "Torr", "mol": "mole moles",
    "cal": "calorie calories", "kcal": "Cal", "eV": "ev electronvolt electronvolts", "Wh": "", "hp": "horsepower",
    "B": "byte bytes", "bit": "bits", "dB": "decibel decibels db",
    "mph": "", "kph": "kmh", "am": "a.m", "pm": "p.m", "dollar": "dollars usd USD", "cent": "cents",
    "yuan": "rmb RMB", "jiao": "", "jin": "", "acre": "acres", "ha": "hectare hectares", "%": "\\% percent pct",
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
_SIZES = {
    "m": "1 length", "in": "0.0254 length", "ft": "0.3048 length", "yd": "0.9144 length", "mi": "1609.344 length",
    "g": "1e-3 mass", "t": "1e3 mass", "lb": "0.45359237 mass", "oz": "0.028349523125 mass", "jin": "0.5 mass",
    "s": "1 time", "min": "60 time", "h": "3600 time", "day": "86400 time", "week": "604800 time",
    "month": "1 month", "year": "12 month",
    "A": "1 current", "mol": "1 amount", "K": "1 temperature", "°C": "1 temperature",
    "rad": "1 angle", "bit": "1 data", "B": "8 data",
    "L": "1e-3 length^3", "gal": "0.003785411784 length^3", "ha": "1e4 length^2", "acre": "4046.8564224 length^2",
    "Hz": "1 time^-1", "N": "1 mass length time^-2",
    "Pa": "1 mass length^-1 time^-2", "bar": "1e5 mass length^-1 time^-2", "atm": "101325 mass length^-1 time^-2",
    "psi": "6894.757293168 mass length^-1 time^-2", "mmHg": "133.322387415 mass length^-1 time^-2",
    "torr": "133.322368421 mass length^-1 time^-2",
    "J": "1 mass length^2 time^-2", "cal": "4.184 mass length^2 time^-2",
    "eV": "1.602176634e-19 mass length^2 time^-2", "Wh": "3600 mass length^2 time^-2",
    "W": "1 mass length^2 time^-3", "hp": "745.699871582 mass length^2 time^-3",
    "V": "1 mass length^2 time^-3 current^-1", "Ω": "1 mass length^2 time^-3 current^-2",
    "C": "1 current time", "F": "1 mass^-1 length^-2 time^4 current^2", "T": "1 mass time^-2 current^-1",
    "H": "1 mass length^2 time^-2 current^-2",
    "mph": "0.44704 length time^-1",
    "dollar": "1 dollar", "cent": "1e-2 dollar", "yuan": "1 yuan", "jiao": "1e-1 yuan", "%": "1e-2",
}  # fmt: skip
_PREFIXES = {
    "f": ("femto", -15), "p": ("pico", -12), "n": ("nano", -9), "u": ("micro", -6), "m": ("milli", -3),
    "c": ("centi", -2), "d": ("deci", -1), "h": ("hecto", 2), "k": ("kilo", 3), "M": ("mega", 6), "G": ("giga", 9),
    "T": ("tera", 12),
}  # fmt: skip
_PREFIXED = {
    "m": "fpnumcdk", "g": "numk", "s": "fpnum", "L": "numcdhk", "N": "numkMG", "J": "numkMGT", "W": "pnumkMGT",
    "V": "numkM", "A": "pnumk", "Ω": "mkMG", "F": "fpnum", "T": "num", "H": "num", "C": "pnum", "Hz": "mkMGT",
    "Pa": "umhkMG", "bar": "m", "mol": "pnumk", "cal": "k", "eV": "mkMGT", "Wh": "mkMGT", "B": "kMGT", "bit": "kMGT",
    "t": "kM", "K": "num",
}  # fmt: skip


def _measure(written: str) -> Measure:
    size, *quantities = written.split()
    powers = (quantity.partition("^") for quantity in quantities)
    return Fraction(size), {name: int(power or 1) for name, _, power in powers}


def _prefixed() -> tuple[dict[str, str], dict[str, Measure]]:
    """The spellings and sizes of units with a prefix: `kPa`, `kilopascal`, `kilopascals`; `μm` besides `um`."""
    names: dict[str, str] = {}
    sizes: dict[str, Measure] = {}
    for unit, prefixes in _PREFIXED.items():
        size, powers = MEASURES[unit]
        for prefix in prefixes:
            word, exponent = _PREFIXES[prefix]
            name = prefix + unit
            spellings = [name, *(word + alias for alias in _ALIASES[unit].split() if len(alias) > 3)]
            spellings += ["μ" + unit] if prefix == "u" else []
            spellings += ["K" + unit] if prefix == "k" else []
            spellings += [prefix + "ohm"] if unit == "Ω" else []
            names |= dict.fromkeys(spellings, name)
            sizes[name] = (size * Fraction(10) ** exponent, powers)
    return names, sizes


MEASURES: dict[str, Measure] = {name: _measure(written) for name, written in _SIZES.items()}
MEASURES["°"] = (Fraction(math.pi) / 180, {"angle": 1})
MEASURES["°F"] = (Fraction(5, 9), {"temperature": 1})
MEASURES["kph"] = (Fraction(5, 18), {"length": 1, "time": -1})
_prefix_names, _prefix_sizes = _prefixed()
MEASURES |= {name: measure for name, measure in _prefix_sizes.items() if name not in MEASURES}
for _power, (_prefix, _unit) in enumerate((("Ki", "kibi"), ("Mi", "mebi"), ("Gi", "gibi"), ("Ti", "tebi")), start=1):
    MEASURES[f"{_prefix}B"] = (Fraction(8 * 1024**_power), {"data": 1})
    _prefix_names |= dict.fromkeys((f"{_prefix}B", f"{_unit}byte", f"{_unit}bytes"), f"{_prefix}B")

NAMES: dict[str, str] = {
    **_prefix_names,
    **{name: name for name in _ALIASES},
    **{alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()},
    **_CHINESE,
}
"""Every spelling with the unit's one name. Case counts: `mPa` is no `MPa`."""

ZEROS: dict[str, Fraction] = {"K": Fraction(0), "°C": Fraction("273.15"), "°F": Fraction("459.67") * Fraction(5, 9)}
"""Kelvins at the zero of each scale of temperature."""
