"""Who judged how many, how far they agree, on what they do not, and whose answers are preferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import streamlit as st

from console.components.label_item import item_view
from console.components.text import literal
from console.services.formats import age_text, count_text, number_text
from console.services.label_items import Candidate, Item
from console.services.label_results import (
    FEW,
    AgreementReport,
    Disagreement,
    Standing,
    agreement_of,
    disagreements,
    standings,
)
from console.services.labelling import progress
from mmrl.evaluation.agreement import Agreement
from mmrl.jobs.marks import Mark
from mmrl.runs.inert import inert

_KAPPA = (
    "How far two people agree beyond chance: 1 is full agreement, 0 what chance would give, below 0 less than that. "
    "The interval tells how sure that is."
)
_ALPHA = "The same for any number of people, also where not all judged the same. From 0.8 on marks are dependable."


def people(items: Sequence[Item], marks: Sequence[Mark], names: Mapping[str, str]) -> None:
    """Each person's progress; nothing of what they chose."""
    found = progress(marks)
    if not found:
        return
    st.subheader("People", help="Anybody with this address judges the same, blind to what others chose.")
    for each in found:
        share = each.num_judged / len(items)
        told = f"{literal(names.get(each.user_id, each.user_id))}: {count_text(each.num_judged)} of "
        told += f"{count_text(len(items))}, the last one {age_text(each.last_at)}"
        st.progress(min(1.0, share), text=told)


def results(
    items: Sequence[Item],
    marks: Sequence[Mark],
    names: Mapping[str, str],
    image: Callable[[str], Path | None],
) -> None:
    """What nobody may see who still judges blind."""
    if not marks:
        return
    _standings(items, marks)
    if len({mark.user_id for mark in marks}) < 2:
        st.caption("Agreement is told once a second person has judged: send them this page's address.")
        return
    st.subheader("Agreement", help=f"{_KAPPA} {_ALPHA}")
    _agreement(agreement_of(marks), names)
    _disagreements(disagreements(items, marks), names, image)


def agreement_text(found: Agreement, *, what: str) -> str:
    if found.value is None or found.low is None or found.high is None:
        return f"{what} not defined on {count_text(found.num)}: only one choice was made"
    told = f"{what} {number_text(found.value, 3)} (95 % between {number_text(found.low, 2)} and "
    told += f"{number_text(found.high, 2)}) on {count_text(found.num)}"
    if found.low <= 0:
        return f"{told}: it may be chance, more has to be judged"
    return f"{told}: few, so take the interval seriously" if found.num < FEW else told


def _agreement(report: AgreementReport, names: Mapping[str, str]) -> None:
    for one, other, found in report.kappas:
        pair = f"{names.get(one, one)} and {names.get(other, other)}"
        st.text(f"{pair}: {agreement_text(found, what='Cohen’s kappa')}")
    if report.alpha.num:
        st.text(f"All: {agreement_text(report.alpha, what='Krippendorff’s alpha')}")
    else:
        st.text("No two people have judged the same yet.")


def _standings(items: Sequence[Item], marks: Sequence[Mark]) -> None:
    found = standings(items, marks)
    if not found:
        return
    st.subheader("Result", help="By what most people chose of each two answers. It is told once you have judged all.")
    for each in found:
        st.text(_standing_text(each))


def _standing_text(each: Standing) -> str:
    told = f"{each.by}: better {each.wins}, worse {each.losses}, as good {each.ties}, none good {each.all_bad}, "
    told += f"people divided {each.divided}"
    if each.low is None or each.high is None:
        return told
    interval = f"95 % between {each.low:.0%} and {each.high:.0%}, over {_prompts(each.num_prompts)}"
    return f"{told}; won {_share(each.wins, each.losses)} ({interval})"


def _prompts(num: int) -> str:
    return "1 prompt" if num == 1 else f"{count_text(num)} prompts"


def _share(wins: int, losses: int) -> str:
    return f"{wins / (wins + losses):.0%} of {count_text(wins + losses)}"


def _disagreements(
    found: Sequence[Disagreement], names: Mapping[str, str], image: Callable[[str], Path | None]
) -> None:
    if not found:
        st.text("Nobody disagrees.")
        return
    place = min(int(st.session_state.get("label-divided", 0)), len(found) - 1)
    with st.container(horizontal=True, vertical_alignment="center", key="label-divided-head"):
        st.markdown(f"**Divided over {count_text(len(found))}**")
        st.button("Earlier", key="label-earlier", shortcut="k", disabled=place == 0, on_click=_go, args=(place - 1,))
        st.button(
            "Later", key="label-later", shortcut="j", disabled=place + 1 == len(found), on_click=_go, args=(place + 1,)
        )
        st.caption(f"{place + 1} of {len(found)}")
    shown = found[place]
    notes = [_maker_text(candidate) for candidate in shown.item.candidates]
    item_view(shown.item, range(len(shown.item.candidates)), image, notes=notes, key="label-divided-item")
    for mark in shown.marks:
        told = f"{names.get(mark.user_id, mark.user_id)}: {_choice_text(mark)}"
        why = " · ".join(filter(None, [mark.reason, *mark.tags]))
        st.text(f"{told} ({inert(why)})" if why else told)


def _maker_text(candidate: Candidate) -> str:
    """Who made an answer and what it got, for those who have judged all."""
    if candidate.reward is None:
        return literal(candidate.by)
    return literal(f"{candidate.by} · reward {number_text(candidate.reward, 3)}")


def _choice_text(mark: Mark) -> str:
    """With the answers as they stand in the list of disagreements, the same for all."""
    if mark.all_bad:
        return "none is good"
    if mark.choice is not None:
        return {"a": "left is better", "b": "right is better", "tie": "as good"}[mark.choice]
    levels: dict[int, list[str]] = {}
    for place, rank in enumerate(mark.ranks, start=1):
        levels.setdefault(rank, []).append(str(place))
    return " > ".join(" = ".join(level) for _, level in sorted(levels.items()))


def _go(place: int) -> None:
    st.session_state["label-divided"] = place
