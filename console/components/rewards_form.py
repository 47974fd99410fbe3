"""The rewards of a run: which, with what weight and settings, and how they score real rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import streamlit as st

from console.components.changes import changed
from console.components.form import FORM_ERROR, Form, fields_grid
from console.components.parts import problem
from console.components.text import literal
from console.services.draft_text import UNSET
from console.services.drafts import Draft
from console.services.form_fields import part_fields
from console.services.formats import duration_text, number_text
from console.services.launching import Launching
from console.services.processes import Task
from mmrl.config.reward import RewardConfig
from mmrl.errors import MmrlError

_EVERY_S = 1.0
_SHARED = ("weight", "name", "shaping", "normalise")
_NUM_SHOWN = 60
_CLASSES: Mapping[str, Any] = {
    member.model_fields["type"].default: member for member in get_args(get_args(RewardConfig)[0])
}


def rewards(form: Form, launching: Launching) -> None:
    """Beside the form of the rewards, their try-out."""
    items = _items(form.draft)
    for number, item in enumerate(items):
        _reward(form, number, item)
    _add(form)
    form.tell_faults("reward")
    if items:
        _try_out(form, launching)


def _items(draft: Draft) -> list[Mapping[str, Any]]:
    written = draft.value("reward")
    return [each if isinstance(each, Mapping) else {} for each in written] if isinstance(written, list) else []


def _reward(form: Form, number: int, item: Mapping[str, Any]) -> None:
    kind = str(item.get("type") or "")
    prefix = f"reward.{number}."
    with st.container(border=True, key=form.key(f"reward-{number}"), gap="small"):
        if kind not in _CLASSES:
            problem(f"The reward {kind!r} is not known; mend it in the YAML, or remove it.")
            _remove(form, number, item)
            return
        fields = {field.key.removeprefix(prefix): field for field in part_fields(_CLASSES[kind], item, prefix)}
        about, weight, gone = st.columns([6, 2, 2], vertical_alignment="bottom")
        with about:
            st.markdown(f"**{literal(item.get('name') or kind)}**")
            st.caption(literal(" ".join((_CLASSES[kind].__doc__ or "").split())))
        with weight:
            form.field(fields["weight"])
        with gone:
            _remove(form, number, item)
        own = [field for name, field in fields.items() if name not in _SHARED]
        fields_grid(form, [field for field in own if field.is_required], columns=2)
        others = [field for field in own if not field.is_required]
        with st.expander("Settings", key=form.key(f"reward-{number}-more"), on_change="rerun") as more:
            if more.open:
                fields_grid(form, [*others, *(fields[name] for name in _SHARED[1:])], columns=3)


def _remove(form: Form, number: int, item: Mapping[str, Any]) -> None:
    kind = item.get("type")

    def remove() -> None:
        """Only what the page showed there: an earlier click may have moved the others up."""
        there = _items(form.now())
        if len(there) > number and there[number].get("type") == kind:
            form.save("reward" if len(there) == 1 else f"reward.{number}", UNSET)

    st.button("Remove", key=form.key(f"reward-{number}-remove"), on_click=remove, type="tertiary")


def _add(form: Form) -> None:
    """Any reward that mmrl has; its settings are asked once it is there."""
    key = form.key("reward-new")

    def add(chosen: str | None) -> None:
        if chosen is not None:
            form.save("reward", [*map(dict, _items(form.now())), {"type": chosen, "weight": 1.0}])
            st.session_state[key] = None

    st.selectbox(
        "Add a reward",
        list(_CLASSES),
        index=None,
        key=key,
        placeholder="choose what an answer is judged by",
        format_func=lambda name: f"{name}: {' '.join((_CLASSES[name].__doc__ or '').split())[:90]}",
        on_change=changed(key, add),
    )


def _try_out(form: Form, launching: Launching) -> None:
    def start() -> None:
        try:
            launching.start_try_out(form.draft)
        except MmrlError as error:
            st.session_state[FORM_ERROR] = str(error)

    st.button(
        "Try the rewards on rows of the data",
        key=form.key("try-out"),
        on_click=start,
        disabled=not form.checked.is_sound,
        help="Each row is answered with its reference, a wrong answer, nothing, and in other ways; the rewards score "
        "these. It takes some seconds.",
    )
    draft = form.draft

    @st.fragment(run_every=_EVERY_S if _is_working(launching.try_out(draft)) else None)
    def look() -> None:
        task = launching.try_out(draft)
        if task is None:
            return
        if not task.is_over:
            st.text(f"Scoring for {duration_text(task.seconds)}…")
        elif task.data is None:
            problem(task.error or "Nothing was scored.")
        else:
            _scores(task, is_stale=task.stamp != draft.stamp)

    with st.container(key="try_out_result"):
        look()


def _is_working(task: Task | None) -> bool:
    return task is not None and not task.is_over


def _scores(task: Task, *, is_stale: bool) -> None:
    """Means by kind of answer, what looks wrong, and single answers."""
    data = task.data
    if is_stale:
        st.caption(":orange[Of settings from before your last change.]")
    parts = list(data["probes"][0]["part_means"]) if data["probes"] else []
    st.caption(f"Mean scores of {data['samples']} rows of {literal(data['data'])}, by kind of answer")
    st.table(
        {
            "Answer": [row["probe"] for row in data["probes"]],
            "Total": [number_text(row["mean"], 3) for row in data["probes"]],
        }
        | {literal(part): [number_text(row["part_means"][part], 3) for row in data["probes"]] for part in parts}
    )
    for text in data["problems"][:5]:
        st.warning(literal(text))
    with st.expander("Single answers", key="single_answers"):
        rows = [
            {
                "Answer": each["probe"],
                "Response": each["response"],
                "Reference": each["answer"],
                "Total": each["total"],
            }
            for each in data["responses"][:_NUM_SHOWN]
        ]
        st.dataframe(rows, hide_index=True, key="scored_answers", alt="Responses that were tried, with their scores")
