"""The form of a run, from its goal to its last setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from console.components.changes import changed
from console.components.form import Form, fields_grid
from console.components.text import literal
from console.services.algorithm_notes import AlgorithmNote, algorithm_notes, preference_notes
from console.services.beginnings import GOALS
from console.services.choices import resolve_ref, train_refs, train_value, train_weights
from console.services.draft_text import UNSET
from console.services.form_fields import FormGroup, few_fields, run_form, title_of
from console.services.formats import count_text

_APART = ("name", "model.path")
_MAX_FOUND = 30


def goal(form: Form) -> str:
    """What the run is for; gives its kind."""
    kind = str(form.draft.value("kind", "rl"))
    key = form.hold("kind", kind if kind in GOALS else "rl")
    st.segmented_control(
        "Goal",
        list(GOALS),
        format_func=lambda each: GOALS[each][0],
        key=key,
        required=True,
        wrap=True,
        on_change=changed(key, lambda new: form.save("kind", new)),
    )
    st.caption(GOALS[st.session_state[key]][1])
    form.tell_faults("kind")
    return str(st.session_state[key])


def name_and_model(form: Form, models: Sequence[str]) -> None:
    """models: to choose among; any other path or hub name can be typed."""
    fields = {field.key: field for group in run_form(form.draft.data or {}) for field in group.fields}
    left, right = st.columns(2)
    with left:
        form.field(fields["name"])
    with right:
        value = str(form.draft.value("model.path") or "")
        key = form.hold("model.path", value or None)
        st.selectbox(
            "Model",
            list(dict.fromkeys([*([value] if value else []), *models])),
            index=None,
            key=key,
            accept_new_options=True,
            placeholder="choose, or type a folder or hub name",
            help=fields["model.path"].help,
            on_change=changed(key, lambda new: form.save("model.path", new or UNSET)),
        )
        form.tell_faults("model.path")
        form.tell_faults("model")


def data(form: Form, known: Mapping[str, int]) -> None:
    """What is trained and measured on. known: NAME@SPLIT -> rows."""
    written = form.draft.value("data.train")
    refs = [resolve_ref(ref, known) for ref in train_refs(written)]
    left, right = st.columns(2)
    with left:
        key = form.hold("data.train", refs)
        st.multiselect(
            "Training data",
            list(dict.fromkeys([*known, *refs])),
            key=key,
            accept_new_options=True,
            format_func=lambda ref: f"{ref} · {count_text(known[ref])} rows" if ref in known else ref,
            placeholder="choose a data set",
            help="One data set, or several that are mixed by weight. A path or hf://NAME@SPLIT can be typed too.",
            on_change=changed(key, lambda new: _save_train(form, list(new))),
        )
        form.tell_faults("data.train")
        form.tell_faults("data")
        if len(refs) > 1:
            _weights(form, refs, train_weights(written))
    with right:
        held_out = form.draft.value("data.eval")
        held_out = resolve_ref(held_out, known) if isinstance(held_out, str) and held_out else None
        key_eval = form.hold("data.eval", held_out)
        st.selectbox(
            "Held-out data",
            list(dict.fromkeys([None, *known, held_out])),
            key=key_eval,
            accept_new_options=True,
            format_func=lambda ref: "none" if ref is None else ref,
            help="Answered from time to time, and never trained on. Split a data set to get some.",
            on_change=changed(key_eval, lambda new: form.save("data.eval", new or UNSET)),
        )
        form.tell_faults("data.eval")


def algorithm(form: Form, kind: str) -> None:
    """How scores become updates, or which loss pairs have; with what the manual says of it."""
    part = {"rl": "algorithm", "preference": "preference"}.get(kind)
    if part is None:
        return
    notes = algorithm_notes() if kind == "rl" else preference_notes()
    default = "grpo" if kind == "rl" else "dpo"
    chosen = str(form.draft.value(f"{part}.type", default))
    key = form.hold(f"{part}.type", chosen if chosen in notes else default)
    st.selectbox(
        "Algorithm" if kind == "rl" else "Loss",
        list(notes),
        key=key,
        help="How rewards become updates." if kind == "rl" else "What is made of a better and a worse answer.",
        on_change=changed(key, lambda new: form.save(part, {"type": new})),
    )
    form.tell_faults(f"{part}.type")
    form.tell_faults(part)
    note(notes[st.session_state[key]])


def note(each: AlgorithmNote) -> None:
    """Plain words first; formulas on demand."""
    with st.container(key="algorithm_note", gap="xsmall"):
        st.text(each.summary)
        points = dict(each.points)
        if "When" in points:
            st.caption("When to take it")
            st.text(points["When"])
        formulas = [(name, text) for name, text in each.points if name != "When"]
        if formulas:
            with st.expander("Its formulas and defaults", key="formulas"):
                for name, text in formulas:
                    st.caption(name)
                    st.text(text)
                st.caption("R is a response's score, A its advantage, r the ratio of the new to the old policy.")


def few(form: Form, groups: list[FormGroup]) -> None:
    """What is asked first."""
    fields_grid(form, [field for field in few_fields(groups) if field.key not in _APART], columns=4)


def advanced(form: Form, groups: list[FormGroup]) -> None:
    """All else, by group; only what is open is drawn."""
    words = st.text_input(
        "Find a setting", key=form.key("find"), live=True, placeholder="such as clip, warm-up, memory", type="search"
    ).lower()
    if words:
        found = [
            field
            for group in groups
            for field in group.fields
            if words in f"{field.key} {field.label} {field.help}".lower()
        ]
        if not found:
            st.caption("No setting speaks of this.")
        fields_grid(form, found[:_MAX_FOUND], columns=3)
        return
    tops = dict.fromkeys(group.key.partition(".")[0] for group in groups)
    for top in tops:
        _top_group(form, top, [group for group in groups if group.key.partition(".")[0] == top])


def _top_group(form: Form, top: str, groups: list[FormGroup]) -> None:
    """One group of the config with the groups in it; drawn when it is opened."""
    shown = {group.key: [field for field in group.fields if not field.is_few] for group in groups}
    changed = sum(form.draft.value(field.key) is not None for fields in shown.values() for field in fields)
    if not any(shown.values()):
        return
    label = literal(title_of(top)) + (f" · {changed} set" if changed else "")
    with st.expander(label, key=form.key(f"group_{top or 'top'}"), on_change="rerun") as opened:
        if not opened.open:
            return
        for group in groups:
            if shown[group.key]:
                if group.key != top:
                    st.markdown(f"**{literal(group.title)}**")
                if group.help:
                    st.caption(literal(group.help))
                fields_grid(form, shown[group.key], columns=3)


def _weights(form: Form, refs: list[str], weights: dict[str, float]) -> None:
    """How often each set is drawn; the share beside it."""
    total = sum(weights.get(ref, 1.0) for ref in refs)
    for number, ref in enumerate(refs):
        weight = weights.get(ref, 1.0)
        key = form.hold(f"weight-{number}-{ref}", weight)

        def change(new: float | None, ref: str = ref) -> None:
            _save_train(form, refs, {ref: max(float(new or 0), 0.01)})

        label = f"Weight of {literal(ref)}: {weight / total:.0%} of what is drawn"
        st.number_input(label, min_value=0.01, step=0.5, key=key, on_change=changed(key, change))


def _save_train(form: Form, refs: list[str], weights: Mapping[str, float] | None = None) -> None:
    """weights: those that changed; the others are as they are by now, which the page may not have shown yet."""
    value: Any = train_value(refs, {**train_weights(form.now().value("data.train")), **(weights or {})})
    form.save("data.train", UNSET if value is None else value)
