"""Text of models and data, made safe to print: a terminal must not obey it."""

from __future__ import annotations

import unicodedata

_KEPT = {"\n", "\t"}
_KEPT_FORMAT = {"\u200c", "\u200d"}  # joiners, which scripts and emoji need
_ESCAPED_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def inert(text: str, *, one_line: bool = False) -> str:
    """Control, bidirectional and other invisible characters as their escapes (`\\x1b`, `\\u202e`).

    Line feeds and tabs stay, unless `one_line` asks for the escapes of these too.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(character) if _is_unsafe(character, one_line) else character for character in text)


def _is_unsafe(character: str, one_line: bool) -> bool:
    if character in _KEPT:
        return one_line
    return character not in _KEPT_FORMAT and unicodedata.category(character) in _ESCAPED_CATEGORIES


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
