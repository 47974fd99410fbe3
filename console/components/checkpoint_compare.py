"""A comparison as people read it: the figures with their certainty, then prompts with everyone's responses."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from console.components.long_text import model_text
from console.components.text import literal
from console.services.checkpoint_compare import CHANGES, Change, Compared, ComparedRow, label_of, word_differences
from console.services.compare_export import interval_words
from console.services.formats import count_text, number_text
from mmrl.data.thumbnails import thumbnail_of
from mmrl.evaluation.paired import PairedResult
from mmrl.evaluation.records import Evaluation
from mmrl.runs.inert import inert
from mmrl.runs.records import ResponseRecord
from mmrl.types import Sample

_MAX_SHOWN = 3_000
_COLOURS: dict[Change, str] = {
    "solved": "green",
    "lost": "red",
    "oftener": "green",
    "rarer": "orange",
    "better": "green",
    "worse": "orange",
    "same": "gray",
    "missing": "gray",
}


def figures(compared: Compared) -> None:
    """For each other evaluation its difference from the base, with interval and test, and what speaks against it."""
    base, *others = compared.comparison.evaluations
    for number, (other, results, flags) in enumerate(
        zip(others, compared.comparison.results, compared.comparison.flags, strict=True)
    ):
        with st.container(border=True, key=f"result-{number}", gap="small"):
            st.markdown(f"**{literal(label_of(other))}** against {literal(label_of(base))}")
            for metric in compared.metrics:
                _result(results[metric])
            with st.container(horizontal=True, gap="small"):
                for change, words in CHANGES.items():
                    num = compared.count(number, change)
                    if num:
                        st.badge(f"{count_text(num)} {words}", color=_COLOURS[change])  # type: ignore[arg-type]
            _flags(flags)


def prompt_row(compared: Compared, each: ComparedRow, *, key: str) -> None:
    """The prompt, then a column for each evaluation."""
    evaluations = compared.comparison.evaluations
    with st.container(border=True, key=f"prompt-{key}"):
        left, *columns = st.columns([2, *[3] * len(evaluations)], gap="medium")
        with left:
            _prompt(evaluations[0], each, key=key)
        base = each.row.responses[0]
        for number, (column, evaluation, responses) in enumerate(
            zip(columns, evaluations, each.row.responses, strict=True)
        ):
            with column:
                change = each.changes[number - 1] if number else None
                _column(evaluation, responses, change, base[0] if number and base else None, key=f"{key}-{number}")


def _result(result: PairedResult) -> None:
    interval = interval_words(result)
    st.markdown(
        f"{literal(result.metric)} **{number_text(result.first)} → {number_text(result.second)}**, difference "
        f"**{number_text(result.difference, plus=True)}**{' ' if interval else ''}{literal(interval)}, "
        f"p = {result.p_value:.3g}",
        help="Mean over the prompts that both have, with the 95 % interval of the difference and the p-value of a "
        "two-sided sign-flip test, prompt by prompt.",
    )
    st.caption(
        literal(
            f"{count_text(result.better)} wins, {count_text(result.same)} ties, {count_text(result.worse)} losses on "
            f"{count_text(result.num_prompts)} prompts: {result.verdict}"
        )
    )


def _flags(flags: Sequence[str]) -> None:
    """What differs besides the weights: the difference may come of it."""
    if flags:
        st.badge("not only the weights differ", color="orange", help="The difference may come of what is named below.")
    for flag in flags:
        st.text(f"Mind: {flag}")


def _prompt(evaluation: Evaluation, each: ComparedRow, *, key: str) -> None:
    row = each.row
    for number, image in enumerate(Sample(row.prompt_id, row.prompt).images, start=1):
        path = evaluation.image(image.sha256)
        if path is None:
            st.text(f"image {number} is gone")
        else:
            shown = thumbnail_of(path, image.sha256, side=256)
            st.image(str(shown), alt=f"image {number} of the prompt", width=120)
    for number, message in enumerate(row.prompt):
        model_text(message.text, key=f"compare-turn-{key}-{number}", limit=_MAX_SHOWN, empty="(no text)")
    if row.answer is None:
        st.caption("no reference answer")
    else:
        st.caption("reference answer")
        model_text(row.answer, key=f"compare-answer-{key}", limit=_MAX_SHOWN)


def _column(
    evaluation: Evaluation,
    responses: tuple[ResponseRecord, ...],
    change: Change | None,
    base: ResponseRecord | None,
    *,
    key: str,
) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(literal(label_of(evaluation)), width="content")
        if change is not None:
            st.badge(CHANGES[change], color=_COLOURS[change])  # type: ignore[arg-type]
    if not responses:
        st.text("It was not asked this prompt.")
    for number, response in enumerate(responses):
        _response(response, base, key=f"compare-response-{key}-{number}")


def _response(response: ResponseRecord, base: ResponseRecord | None, *, key: str) -> None:
    if response.text is None:
        st.text("Only the numbers of this response were kept.")
    elif base is None or base.text is None or max(len(response.text), len(base.text)) > _MAX_SHOWN:
        model_text(response.text, key=key, limit=_MAX_SHOWN)
    else:
        st.html(marked_html(base.text, response.text))
    reward = "no reward" if response.reward is None else f"reward {number_text(response.reward)}"
    told = "; ".join(f"{part.name}: {part.error or part.explanation}" for part in response.parts if _says(part))
    cut = " · cut at the limit" if response.is_truncated else ""
    st.caption(literal(f"{reward} · {count_text(response.length)} tokens{cut}"), help=literal(told[:600]) or None)


def _says(part: object) -> bool:
    return bool(getattr(part, "error", None) or getattr(part, "explanation", None))


def marked_html(base: str, other: str) -> str:
    """What the base lacks is underlined and tinted; every text escaped."""
    pieces = []
    for text, is_new in word_differences(inert(base), inert(other)):
        style = "background:rgba(58,147,200,.25);text-decoration:underline" if is_new else ""
        pieces.append(f'<span style="{style}">{html.escape(text)}</span>')
    style = "white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext"
    return f'<div style="{style}">{"".join(pieces) or "(empty)"}</div>'
