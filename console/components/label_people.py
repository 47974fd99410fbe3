"""Who judged how many, how far they agree, on what they do not, and whose answers are preferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import streamlit as st

from console.components.export_button import export_button
from console.components.label_item import item_view
from console.components.number_table import number_table
from console.components.text import literal
from console.services.formats import age_text, count_text, number_text
from console.services.label_drawing import Candidate, Item
from console.services.label_export import export_results
from console.services.label_items import ItemSource
from console.services.label_results import (
    FEW,
    AgreementReport,
    Disagreement,
    PersonCounts,
    Standing,
    agreement_of,
    counts_of_people,
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


def results(source: ItemSource, items: Sequence[Item], marks: Sequence[Mark], names: Mapping[str, str]) -> None:
    """What nobody may see who still judges blind, or may take a mark back."""
    if not marks:
        return
    found, report, counts = standings(items, marks), agreement_of(marks), counts_of_people(marks)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        st.subheader("Result", help="By what most people chose of each two answers.", width="content")
        export_button(export_results(source.about, found, report, counts, names), key="label-results")
    if found:
        number_table([_standing_row(each) for each in found], key="standings")
        over = ", ".join(f"{each.by} {_prompts(each.num_prompts)}" for each in found)
        told = "In brackets Wilson's interval at 95 %, over prompts: pairs of one prompt are no independent draws"
        st.caption(literal(f"{told} ({over})."))
    number_table([_person_row(each, names) for each in counts], key="people")
    if len(counts) < 2:
        st.caption("Agreement is told once a second person has judged: send them this page's address.")
        return
    st.subheader("Agreement", help=f"{_KAPPA} {_ALPHA}")
    _agreement(report, names)
    _disagreements(disagreements(items, marks), names, source.image)


def agreement_note(found: Agreement) -> str:
    """What a reader has to mind of a value; empty where nothing."""
    if found.value is None or found.low is None:
        return "not defined, only one choice was made"
    if found.low <= 0:
        return "it may be chance, more has to be judged"
    return "few, so take the interval seriously" if found.num < FEW else ""


def _agreement(report: AgreementReport, names: Mapping[str, str]) -> None:
    if not report.alpha.num:
        st.text("No two people have judged the same yet.")
        return
    found = [
        (f"{names.get(one, one)} and {names.get(other, other)}, Cohen’s kappa", kappa)
        for one, other, kappa in report.kappas
    ]
    found.append(("All, Krippendorff’s alpha", report.alpha))
    number_table([_agreement_row(who, each) for who, each in found], key="agreement")
    for who, each in found:
        if note := agreement_note(each):
            st.caption(literal(f"{who}: {note}."))


def _agreement_row(who: str, found: Agreement) -> dict[str, str]:
    return {
        "Between": literal(who),
        "Agreement": number_text(found.value, 3),
        "95 % interval": _interval(found.low, found.high),
        "Judged by two or more": count_text(found.num),
    }


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{number_text(low, 3)} to {number_text(high, 3)}"


def _standing_row(each: Standing) -> dict[str, str]:
    decided = each.wins + each.losses
    return {
        "Answers of": literal(each.by),
        "Better": count_text(each.wins),
        "Worse": count_text(each.losses),
        "As good": count_text(each.ties),
        "None good": count_text(each.all_bad),
        "People divided": count_text(each.divided),
        "Share won": f"{number_text(each.wins / decided, 3)} ({_interval(each.low, each.high)})" if decided else "–",
    }


def _prompts(num: int) -> str:
    return "1 prompt" if num == 1 else f"{count_text(num)} prompts"


def _person_row(each: PersonCounts, names: Mapping[str, str]) -> dict[str, str]:
    sided = f"{count_text(each.num_left)} of {count_text(each.num_sided)}" if each.num_sided else "–"
    return {
        "Person": literal(names.get(each.user_id, each.user_id)),
        "Judged": count_text(each.num_judged),
        "Preferred one": count_text(each.num_preferred),
        "As good": count_text(each.num_ties),
        "None good": count_text(each.num_all_bad),
        "Took the left": sided,
        "Median time": "–" if each.seconds is None else f"{number_text(each.seconds, 2)} s",
    }


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
