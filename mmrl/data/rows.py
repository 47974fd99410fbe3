"""Rows as they come from a file, and what is said of a row that cannot be used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 64
MAX_FIELD_CHARACTERS = 200
MAX_MESSAGE_CHARACTERS = 1000


@dataclass(frozen=True)
class RawRow:
    """number: 1-based physical line in a text file, else 1-based row. values: by column, as the file holds them.

    file: the name of the file that it stands in.
    """

    number: int
    values: Mapping[str, Any]
    file: str = field(default="", compare=False)


@dataclass(frozen=True)
class RowError:
    """Why a row cannot be used: where it is, which field, what is wrong and how to mend it."""

    file: str
    row: int
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.row}"
        return f"{place}: {self.field}: {self.message}" if self.field else f"{place}: {self.message}"


class RowProblem(Exception):
    """Raised while a row is read; its reader turns it into a RowError. Never reaches a user by itself.

    Whatever a row holds, its message stays short: an image as base64 must not flood a log.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = shortened(field, MAX_FIELD_CHARACTERS)
        self.message = shortened(message, MAX_MESSAGE_CHARACTERS)


def check_values(value: Any, field: str = "", depth: int = 0) -> None:
    """Raises RowProblem for what no data set may hold: NaN, infinity, text that is not Unicode, bottomless nesting."""
    if value is None or isinstance(value, bytes | int):
        return
    if isinstance(value, str):
        if not (value.isascii() or _is_unicode(value)):
            raise RowProblem(
                field, "holds half of a surrogate pair, which is no valid Unicode text; write the character whole"
            )
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise RowProblem(
                field,
                f"holds {_not_finite(value)}, which is no number that JSON allows; give a finite number, text or null",
            )
    elif depth >= MAX_DEPTH:
        raise RowProblem(field, f"nested more than {MAX_DEPTH} levels deep; flatten it")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_values(key, field, depth + 1)
            check_values(item, f"{field}.{key}" if field else str(key), depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_values(item, f"{field}[{index}]", depth + 1)


class BeyondFloat(float):
    """A number that JSON text gives and that is too large for floating point, with the text it was written as."""

    text: str

    def __new__(cls, text: str) -> BeyondFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number


def parse_float(text: str) -> float:
    """For `json`: a number that becomes infinity keeps how it was written."""
    number = float(text)
    return number if math.isfinite(number) else BeyondFloat(text)


def _not_finite(value: float) -> str:
    return f"{value.text[:60]} (beyond what a number can hold)" if isinstance(value, BeyondFloat) else str(value)


def describe(value: Any) -> str:
    """A value for an error message: its kind and, if short, itself; never the bytes of an image."""
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:57]!r}… ({len(value)} characters)"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)[:60]
    if isinstance(value, Mapping):
        return "an object with " + (name_list(value, most=8) or "no keys")
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a {type(value).__name__}"


def name_list(names: Iterable[Any], *, most: int = 40) -> str:
    """The names for an error message, at most so many of them and each short."""
    known = list(names)
    shown = ", ".join(shortened(str(name), 60) for name in known[:most])
    return f"{shown} and {len(known) - most} more" if len(known) > most else shown


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
