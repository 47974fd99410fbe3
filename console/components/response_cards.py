"""One group as people read it: the image and the prompt, and its responses from the best to the worst."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from console.components.text import literal
from console.services.formats import count_text, number_text
from console.services.responses import Responses
from console.services.token_words import QUANTITIES, TokenCell, cells, quantities_of, tokenizer_of
from mmrl.jobs.records import Job
from mmrl.runs.inert import inert
from mmrl.runs.records import GroupRecord, ResponseRecord
from mmrl.types import RewardPart

_MAX_SHOWN = 20_000
_MAX_CELLS = 4_000
_ORANGE = "213, 94, 0"


def prompt_side(responses: Responses, group: GroupRecord) -> None:
    """Images as large as their column, each turn, and the reference answer."""
    for number, image in enumerate(group.images, start=1):
        size = f"{image.width} × {image.height} pixels"
        path = responses.image(image.sha256)
        if path is None:
            st.text(f"image {number} ({size}) was not kept")
            continue
        st.image(str(path), caption=f"image {number} · {size}", alt=f"image {number}, {size}", width="stretch")
    if group.prompt is None:
        st.text("Only the numbers of this prompt were kept.")
        return
    for message in group.prompt:
        st.caption(message.role)
        st.text(_shown(message.text) or "(no text)")
    st.caption("reference answer")
    st.text("none" if group.answer is None else _shown(group.answer) or "(empty)")


def response_card(response: ResponseRecord, *, place: int, job: Job, quantity: str | None, name: str = "") -> None:
    """place: in the order of rewards, from 1. quantity: what the tokens are shaded by; None shows plain text."""
    key = f"response-{name or response.sample_idx}"
    with st.container(border=True, key=key, gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{literal(name) if name else f'{place}.'}** reward **{_number(response.reward)}**")
            _badges(response)
        st.caption(literal(_figures(response)))
        if response.text is None:
            st.text("Only the numbers of this response were kept.")
        elif quantity is None or quantity not in quantities_of(response):
            st.text(_shown(response.text) or "(empty)")
        else:
            st.html(_map(cells(response, quantity, tokenizer_of(job))[:_MAX_CELLS]))
        if response.parts:
            st.html(_parts(response.parts))


def legend(quantity: str) -> None:
    st.caption(f"{literal(quantity)}: {literal(QUANTITIES[quantity])} Hover over a token for its value.")


def _badges(response: ResponseRecord) -> None:
    if response.is_truncated:
        st.badge("cut at the limit", color="orange")
    if response.reward is None:
        st.badge("a reward failed", color="red")


def _figures(response: ResponseRecord) -> str:
    advantage = "no advantage" if response.advantage is None else f"advantage {response.advantage:+.3f}"
    turns = f" · {response.turns} turns" if response.turns > 1 else ""
    return f"{advantage} · {count_text(response.length)} tokens · ended by {response.finish_reason}{turns}"


def _parts(parts: Sequence[RewardPart]) -> str:
    """A line a part: a bar of its value between 0 and 1, its name, value and weight, and why it has that value."""
    lines = []
    for part in parts:
        told = [f"read as “{part.extracted}”"] if part.extracted is not None else []
        told += [part.explanation] if part.explanation else []
        told += [f"failed: {part.error}"] if part.error else []
        value = f"{_number(part.value)} × {number_text(part.weight, 3)}"
        cells = (f"<b>{_safe(part.name)}</b>", _safe(value), _safe("; ".join(told)))
        lines.append(_bar(part.value) + "".join(f'<div style="overflow-wrap:anywhere">{cell}</div>' for cell in cells))
    columns = "4.5rem minmax(4rem,auto) minmax(5.5rem,auto) 1fr"
    style = f"display:grid;grid-template-columns:{columns};gap:.3rem .9rem;align-items:center;font-size:.9rem"
    return f'<div style="{style}">{"".join(lines)}</div>'


def _bar(value: float | None) -> str:
    """Empty where there is no value; full beyond 1. The number beside it tells what the bar cannot."""
    share = 0.0 if value is None else min(1.0, max(0.0, value))
    return (
        '<div aria-hidden="true" style="height:8px;border-radius:4px;background:rgba(127,127,127,.25)">'
        f'<div style="height:8px;border-radius:4px;width:{share * 100:.0f}%;background:#0b7a75"></div></div>'
    )


def _map(tokens: list[TokenCell]) -> str:
    """Every text escaped; line feeds are shown and broken at."""
    spans = []
    for token in tokens:
        text = html.escape(inert(token.text)).replace("\n", "↵<br>")
        told = html.escape("not computed" if token.value is None else number_text(token.value))
        edge = "" if token.is_sampled else "opacity:.55;text-decoration:underline dotted;"
        style = f"background:rgba({_ORANGE},{token.shade * 0.75:.2f});{edge}border-radius:3px"
        spans.append(f'<span title="{told}" style="{style}"><bdi>{text}</bdi></span>')
    return f'<div style="white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7">{"".join(spans)}</div>'


def _shown(text: str) -> str:
    safe = inert(text)
    return safe if len(safe) <= _MAX_SHOWN else f"{safe[:_MAX_SHOWN]}… ({len(safe):,} characters)"


def _safe(text: str) -> str:
    return f"<bdi>{html.escape(_shown(text))}</bdi>"


def _number(value: float | None) -> str:
    return "none" if value is None else number_text(value)
