"""Text of models and data, made safe to print: a terminal must not obey it."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_KEPT = {"\n", "\t"}
_KEPT_FORMAT = {"\u200c", "\u200d"}  # joiners, which scripts and emoji need
_ESCAPED_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_BLOB = re.compile(r"(?:data:[\w.+-]+/[\w.+-]+;base64,)?[A-Za-z0-9+/_-]{1000,}={0,2}")
"""An image or other bytes as base64; no word of a message is as long."""


def without_blobs(text: str) -> str:
    """Bytes that stand in a message as base64 as their size and digest: they flood logs and tell nobody anything."""
    return _BLOB.sub(_blob_in_words, text) if len(text) >= 1000 else text


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


def _blob_in_words(match: re.Match[str]) -> str:
    digest = hashlib.sha256(match[0].encode()).hexdigest()
    return f"<base64 of {len(match[0])} characters, sha256 {digest[:16]}>"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
