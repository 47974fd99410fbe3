"""A comparison as people read it: the figures with their certainty, then prompts with everyone's responses."""

from __future__ import annotations

import html

import streamlit as st

from console.components.text import literal
from console.services.checkpoint_compare import CHANGES, Change, Compared, ComparedRow, word_differences
from console.services.formats import count_text, number_text
from mmrl.evaluation.paired import PairedResult
from mmrl.evaluation.records import Evaluation
from mmrl.runs.inert import inert
from mmrl.runs.records import ResponseRecord
from mmrl.types import Sample

_MAX_SHOWN = 4_000
_COLOURS = {"solved": "green", "lost": "red", "better": "green", "worse": "orange", "same": "gray", "missing": "gray"}


def figures(compared: Compared) -> None:
    """For each other evaluation its difference from the base, with interval and test, and what speaks against it."""
    base, *others = compared.comparison.evaluations
    for number, (other, results, flags) in enumerate(
        zip(others, compared.comparison.results, compared.comparison.flags, strict=True)
    ):
        with st.container(border=True, key=f"result-{number}", gap="small"):
            st.markdown(f"**{literal(other.model.label)}** against {literal(base.model.label)}")
            for metric in compared.metrics:
                _result(results[metric])
            with st.container(horizontal=True, gap="small"):
                for change, words in CHANGES.items():
                    num = compared.count(number, change)
                    if num:
                        st.badge(f"{count_text(num)} {words}", color=_COLOURS[change])  # type: ignore[arg-type]
            for flag in flags:
                st.text(f"Mind: {flag}")


def prompt_row(compared: Compared, each: ComparedRow, *, key: str) -> None:
    """The prompt, then a column for each evaluation."""
    evaluations = compared.comparison.evaluations
    with st.container(border=True, key=f"prompt-{key}"):
        left, *columns = st.columns([2, *[3] * len(evaluations)], gap="medium")
        with left:
            _prompt(evaluations[0], each)
        base = each.row.responses[0]
        for number, (column, evaluation, responses) in enumerate(
            zip(columns, evaluations, each.row.responses, strict=True)
        ):
            with column:
                change = each.changes[number - 1] if number else None
                _column(evaluation, responses, change, base[0] if number and base else None)


def _result(result: PairedResult) -> None:
    bounds = "" if result.low is None or result.high is None else f"[{result.low:+.3f}, {result.high:+.3f}]"
    st.markdown(
        f"{literal(result.metric)} **{number_text(result.first)} → {number_text(result.second)}**, "
        f"difference **{result.difference:+.3f}** {literal(bounds)}, p = {result.p_value:.3g}",
        help="Mean over the prompts that both have, with the 95 % interval of the difference and the p-value of a "
        "two-sided sign-flip test, prompt by prompt.",
    )
    st.caption(
        literal(
            f"{count_text(result.better)} wins, {count_text(result.same)} ties, {count_text(result.worse)} losses on "
            f"{count_text(result.num_prompts)} prompts: {result.verdict}"
        )
    )


def _prompt(evaluation: Evaluation, each: ComparedRow) -> None:
    row = each.row
    for number, image in enumerate(Sample(row.prompt_id, row.prompt).images, start=1):
        path = evaluation.image(image.sha256)
        if path is None:
            st.text(f"image {number} is gone")
        else:
            st.image(str(path), alt=f"image {number} of the prompt", width=120)
    for message in row.prompt:
        st.text(_shown(message.text) or f"({message.role}: no text)")
    st.caption(literal("no reference answer" if row.answer is None else f"answer {_shown(row.answer)}"))


def _column(
    evaluation: Evaluation,
    responses: tuple[ResponseRecord, ...],
    change: Change | None,
    base: ResponseRecord | None,
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(literal(evaluation.model.label), width="content")
        if change is not None:
            st.badge(CHANGES[change], color=_COLOURS[change])  # type: ignore[arg-type]
    if not responses:
        st.text("It was not asked this prompt.")
    for response in responses:
        reward = "no reward" if response.reward is None else f"reward {number_text(response.reward)}"
        if response.text is None:
            st.text("Only the numbers of this response were kept.")
        elif base is None or base.text is None:
            st.text(_shown(response.text) or "(empty)")
        else:
            st.html(_marked(base.text, response.text))
        st.caption(literal(f"{reward} · {count_text(response.length)} tokens"))


def _marked(base: str, other: str) -> str:
    """What the base lacks is underlined and tinted; every text escaped."""
    pieces = []
    for text, is_new in word_differences(_shown(base), _shown(other)):
        style = "background:rgba(58,147,200,.25);text-decoration:underline" if is_new else ""
        pieces.append(f'<span style="{style}"><bdi>{html.escape(text)}</bdi></span>')
    return f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{"".join(pieces) or "(empty)"}</div>'


def _shown(text: str) -> str:
    safe = inert(text)
    return safe if len(safe) <= _MAX_SHOWN else f"{safe[:_MAX_SHOWN]}… ({len(safe):,} characters)"
