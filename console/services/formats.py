"""How numbers, times and sizes are written everywhere in the console: as people of the field write them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_NONE = "–"


def count_text(number: int | None) -> str:
    """1000000 as `1,000,000`."""
    return _NONE if number is None else f"{number:,}"


def counted(number: int, noun: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def number_text(value: float | None, digits: int = 4, *, plus: bool = False) -> str:
    """A measured value with so many significant digits, without an exponent where that is readable, and with a minus
    sign that is one. plus: with a sign also where it is above 0, as of a difference."""
    if value is None or not math.isfinite(value):
        return _NONE
    sign = "−" if value < 0 else "+" if plus and value > 0 else ""
    return f"{sign}{_size_text(abs(value), digits)}"


def end_text(finish_reason: str) -> str:
    """How a response ended, in words: `stop` as `ended by itself`."""
    return {"length": "cut at the limit", "stop": "ended by itself"}.get(finish_reason, finish_reason)


def bytes_text(number: int | None) -> str:
    """In units of 1,000: 7000000000 as `7.0 GB`."""
    if number is None:
        return _NONE
    size = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def duration_text(seconds: float | None) -> str:
    """The two largest units: `45 s`, `3 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None or not math.isfinite(seconds):
        return _NONE
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if minutes < 60:
        return f"{minutes} min {whole % 60} s" if minutes < 5 and whole % 60 else f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def age_text(time: datetime | None, now: datetime | None = None) -> str:
    """How long ago: `just now`, `3 min ago`; `in 5 min` for what is to come."""
    if time is None:
        return _NONE
    seconds = ((now or datetime.now(UTC)) - time).total_seconds()
    if abs(seconds) < 5:
        return "just now"
    minutes = round(abs(seconds)) if abs(seconds) < 60 else round(abs(seconds) / 60) * 60
    return f"{duration_text(minutes)} ago" if seconds > 0 else f"in {duration_text(minutes)}"


def exact_text(time: datetime | None) -> str:
    """A time as it stands in logs: `2026-11-30 07:42:44 UTC`."""
    return _NONE if time is None else f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _size_text(size: float, digits: int) -> str:
    if size != 0 and not 1e-4 <= size < 1e7:
        return f"{size:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(size))) if size else 1
    text = f"{size:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text and float(size).is_integer() else text
