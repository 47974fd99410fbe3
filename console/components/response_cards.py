"""One response as people read it: its reward, its words, token by token where asked for, and why it got its reward."""

from __future__ import annotations

import html
from collections.abc import Sequence

import streamlit as st

from console.components.long_text import model_text
from console.components.reward_why import reward_why
from console.components.text import literal
from console.services.formats import count_text, end_text, number_text
from console.services.token_words import FULL_SHADE, QUANTITIES, TokenCell, cells, quantities_of, tokenizer_of
from mmrl.jobs.records import Job
from mmrl.runs.inert import inert
from mmrl.runs.records import GroupRecord, ResponseRecord

_MAX_CELLS = 4_000
_ORANGE = "213, 94, 0"


def response_card(
    response: ResponseRecord,
    group: GroupRecord,
    *,
    place: int,
    job: Job,
    quantity: str | None,
    shaping: Sequence[str] = (),
    name: str = "",
) -> None:
    """place: in the order of rewards, from 1. quantity: what the tokens are shaded by; None shows plain text."""
    key = f"response-{name or response.sample_idx}"
    with st.container(border=True, key=key, gap="small"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(
                f"**{literal(name) if name else f'{place}.'}** reward **{_number(response.reward)}**", width="content"
            )
            _badges(response)
        st.caption(literal(_figures(response)))
        if response.text is None:
            st.text("Only the numbers of this response were kept.")
        elif quantity is None:
            model_text(response.text, key=f"{key}-{group.split}-{group.step}-{group.group_id}")
        elif quantity not in quantities_of(response):
            model_text(response.text, key=f"{key}-{group.split}-{group.step}-{group.group_id}")
            st.caption(f"{quantity}: not computed for this response.")
        else:
            _tokens(response, quantity, job)
        reward_why(response, group, shaping=shaping)


def legend(quantity: str) -> None:
    """What the shades of tokens mean, with both ends of the scale."""
    end = number_text(FULL_SHADE[quantity], 2)
    scale = f"0 to {end} nats" if quantity != "ratio" else f"1 to {number_text(2.718281828 ** FULL_SHADE[quantity], 3)}"
    st.caption(
        f"{literal(quantity)}: {literal(QUANTITIES[quantity])} From light to dark, {literal(scale)} and beyond, "
        "whatever its sign. Hover over a token for its value; tokens that spell one character together have their mean."
    )


def absent(kept: Sequence[str]) -> None:
    """What the run did not compute is told, since it is no 0."""
    missing = [name for name in QUANTITIES if name not in kept]
    if missing:
        st.caption(f"Not computed here: {', '.join(missing)}.", help="\n\n".join(_HOW[name] for name in missing))


_HOW = {
    "logprob": "logprob: kept with `record.token_logprobs: true`, of groups that were kept in full.",
    "entropy": "entropy: computed where only the tokens of highest entropy learn (`algorithm.entropy_top_share`).",
    "ratio": "ratio: needs the trainer's log-probabilities, computed for responses that the update learned from.",
    "kl": "kl: needs a reference model, which a run has with a KL term (`algorithm.kl.coef` above 0).",
}


def _tokens(response: ResponseRecord, quantity: str, job: Job) -> None:
    found = cells(response, quantity, tokenizer_of(job), limit=_MAX_CELLS)
    st.html(tokens_html(found))
    if len(response.token_ids or ()) > _MAX_CELLS:
        st.caption(f"The first {_MAX_CELLS:,} of {len(response.token_ids or ()):,} tokens.")


def tokens_html(tokens: Sequence[TokenCell]) -> str:
    """Every text escaped; line feeds are shown and broken at."""
    spans = []
    for token in tokens:
        text = html.escape(inert(token.text)).replace("\n", "↵<br>")
        told = "not computed" if token.value is None else number_text(token.value)
        if token.num_tokens > 1:
            told = f"{token.num_tokens} tokens spell this, mean {told}"
        edge = "" if token.is_sampled else "opacity:.75;text-decoration:underline dotted;"
        style = f"background:rgba({_ORANGE},{token.shade * 0.55:.2f});{edge}border-radius:3px"
        spans.append(f'<span title="{html.escape(told)}" style="{style}">{text}</span>')
    style = "white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7;unicode-bidi:plaintext"
    return f'<div style="{style}">{"".join(spans)}</div>'


def _badges(response: ResponseRecord) -> None:
    if response.is_truncated:
        st.badge("cut at the limit", color="orange")
    if response.reward is None:
        st.badge("a reward failed", color="red")


def _figures(response: ResponseRecord) -> str:
    advantage = (
        "no advantage" if response.advantage is None else f"advantage {number_text(response.advantage, plus=True)}"
    )
    turns = f" · {response.turns} turns" if response.turns > 1 else ""
    return f"{advantage} · {count_text(response.length)} tokens · {end_text(response.finish_reason)}{turns}"


def _number(value: float | None) -> str:
    return "none" if value is None else number_text(value)
