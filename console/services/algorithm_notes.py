"""What the manual says of an algorithm: in plain words, its formulas, and when to take it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import get_args

from mmrl.config.algorithm import AlgorithmConfig
from mmrl.config.preference import PreferenceConfig

_DOCS = Path(__file__).resolve().parents[2] / "docs"
_POINT = re.compile(r"^- ([A-Z][^:.]{2,40}): ", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


@dataclass(frozen=True)
class AlgorithmNote:
    """summary: one sentence. points: (what, text), such as (`Advantage`, its formula); both are plain text."""

    type: str
    summary: str
    points: tuple[tuple[str, str], ...] = ()


def algorithm_notes() -> dict[str, AlgorithmNote]:
    """Of every algorithm of kind rl, by its type."""
    return {each.type: _with_manual(each) for each in _of_union(AlgorithmConfig)}


def preference_notes() -> dict[str, AlgorithmNote]:
    """Of every loss on preferences, by its type."""
    formulas = _loss_table()
    return {
        each.type: AlgorithmNote(each.type, each.summary, formulas.get(each.type, ()))
        for each in _of_union(PreferenceConfig)
    }


def _of_union(union: object) -> list[AlgorithmNote]:
    members = get_args(get_args(union)[0])
    notes = (
        AlgorithmNote(member.model_fields["type"].default, " ".join((member.__doc__ or "").split()))
        for member in members
    )
    return sorted(notes, key=lambda note: note.type)


def _with_manual(note: AlgorithmNote) -> AlgorithmNote:
    section = _sections().get(note.type)
    return note if section is None else AlgorithmNote(note.type, note.summary, _points(section))


@cache
def _sections() -> dict[str, str]:
    """The manual's text on each algorithm; nothing where mmrl was installed without its manual."""
    parts = re.split(r"^## +(\w+)\n", _text("algorithms.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=False))


def _points(section: str) -> tuple[tuple[str, str], ...]:
    parts = _POINT.split(section)
    texts = (_plain(text) for text in parts[2::2])
    return tuple(zip(parts[1::2], texts, strict=False))


@cache
def _loss_table() -> dict[str, tuple[tuple[str, str], ...]]:
    rows = re.findall(r"^\| \[?`(\w+)`\]?[^|]*\| ([^|]+) \| ([^|]+) \|", _text("preferences.md"), flags=re.MULTILINE)
    return {name: (("Loss of a pair", _plain(loss)), ("Source", _plain(source))) for name, loss, source in rows}


def _plain(text: str) -> str:
    return " ".join(_LINK.sub(r"\1", text).replace("`", "").replace("**", "").split())


def _text(name: str) -> str:
    try:
        return (_DOCS / name).read_text(encoding="utf-8")
    except OSError:
        return ""
