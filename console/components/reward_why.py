"""Why a response got its reward: its parts, what they add up to, and what that made of its advantage."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from console.components.text import literal
from console.services.formats import number_text
from console.services.reward_sum import Told, advantage_of, signed, sum_of
from mmrl.runs.inert import inert
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import RewardPart

_MAX_SHOWN = 2_000
_LINE = "display:flex;flex-wrap:wrap;align-items:center;gap:.1rem .9rem;margin-bottom:.35rem;font-size:.9rem"
_WIDTHS = ("0 0 7rem", "0 0 8.5rem", "1 1 14rem")


def reward_why(response: ResponseRecord, group: GroupRecord, *, shaping: Sequence[str]) -> None:
    """shaping: names of the parts that only shape."""
    if response.parts:
        st.html(parts_html(response.parts, shaping=shaping))
    _told("Reward", sum_of(response))
    _told("Advantage", advantage_of(response, group, shaping=shaping))


def parts_html(parts: Sequence[RewardPart], *, shaping: Sequence[str] = ()) -> str:
    """A line a part: a bar of its value between 0 and 1, its name, its value and weight, and why it has that value."""
    lines = []
    for part in parts:
        cells = (
            f"<b>{_safe(part.name)}</b>{_small('shapes only') if part.name in shaping else ''}",
            _value(part),
            _safe("; ".join(_reasons(part))),
        )
        shown = "".join(
            f'<div style="flex:{width};min-width:0;overflow-wrap:anywhere">{cell}</div>'
            for width, cell in zip(_WIDTHS, cells, strict=True)
        )
        lines.append(f'<div style="{_LINE}">{_bar(part.value)}{shown}</div>')
    return f"<div>{''.join(lines)}</div>"


def _value(part: RewardPart) -> str:
    if part.value is None:
        return "<b>failed</b>"
    normalised = "" if part.scaled is None else f" → {signed(part.scaled)}"
    return f"{html.escape(signed(part.value))}{html.escape(normalised)} × {html.escape(signed(part.weight))}"


def _reasons(part: RewardPart) -> list[str]:
    told = [f"read as “{part.extracted}”"] if part.extracted is not None else []
    told += [part.explanation] if part.explanation else []
    told += [f"failed: {part.error}"] if part.error else []
    told += ["it overrules all others here"] if part.vetoes else []
    told += ["normalised before it is weighted"] if part.scaled is not None else []
    told += [f"{name} {value if isinstance(value, str) else number_text(value)}" for name, value in part.extras.items()]
    return told


def _told(label: str, told: Told) -> None:
    st.markdown(f"{label}: **{literal(told.line)}**" + (f" {literal(told.note)}" if told.note else ""))


def _bar(value: float | None) -> str:
    """Empty where there is no value; full beyond 1. The number beside it tells what the bar cannot."""
    share = 0.0 if value is None else min(1.0, max(0.0, value))
    return (
        '<div aria-hidden="true" style="flex:0 0 4.5rem;height:8px;border-radius:4px;background:rgba(127,127,127,.25)">'
        f'<div style="height:8px;border-radius:4px;width:{share * 100:.0f}%;background:#0b7a75"></div></div>'
    )


def _small(text: str) -> str:
    return f'<br><span style="opacity:.8;font-size:.8rem">{text}</span>'


def _safe(text: str) -> str:
    shown = inert(text[:_MAX_SHOWN]) + (f"… ({len(text):,} characters)" if len(text) > _MAX_SHOWN else "")
    return f"<bdi>{html.escape(shown)}</bdi>"
