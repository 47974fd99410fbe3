"""The page Label: which of two answers is better, judged blind, by keyboard; what comes of it trains the next run."""

from __future__ import annotations

import time
from collections.abc import Callable

import streamlit as st

from console import context
from console.components.address import change, words
from console.components.label_pair import pair_view
from console.components.parts import attempted, empty_state, part
from console.components.text import literal
from console.services.checkpoint_compare import PanelGroup, by_panel, chosen
from console.services.formats import count_text, number_text
from console.services.labelling import Pair, agreement, next_pair, pairs_of, register_marks
from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.marks import Choice, Mark, Marks
from mmrl.jobs.users import Users

_HOW = "Two checkpoints that were asked the same panel are needed: `mmrl checkpoint evaluate RUN@STEP --panel NAME`."
_CHOICES: dict[str, str] = {
    "left": "Left is better",
    "right": "Right is better",
    "tie": "As good",
    "both_bad": "Both bad",
}
_KEYS = {"left": "1", "right": "2", "tie": "3", "both_bad": "4"}


def page() -> None:
    st.title("Label")
    with part("the answers"):
        panels = [group for group in by_panel(all_evaluations()) if len(group.evaluations) > 1]
        if not panels:
            empty_state("Nothing to judge yet", _HOW)
            st.page_link("app_pages/runs.py", label="Runs")
            return
        group, evaluations = _chosen(panels)
        if len(evaluations) != 2:
            empty_state("Choose two checkpoints", "Their answers to the same prompts are shown side by side, unnamed.")
            return
        pairs = pairs_of(*evaluations)
        marks = _of(pairs, Marks(context.database(), context.viewer()).of_panel(group.hash))
        if _judge(group, pairs, marks):
            _result(marks, evaluations)
        _agreement(marks)
        _use(pairs, marks, evaluations)


def _chosen(panels: list[PanelGroup]) -> tuple[PanelGroup, list[Evaluation]]:
    known = {group.hash: group for group in panels}
    st.session_state["label-panel"] = words()["panel"] if words().get("panel") in known else panels[0].hash
    with st.expander("What is judged", key="label-what"):
        st.selectbox(
            "Panel",
            list(known),
            format_func=lambda each: known[each].name,
            key="label-panel",
            on_change=_take("panel", forget="ids"),
        )
        group = known[st.session_state["label-panel"]]
        evaluations = {evaluation.id: evaluation for evaluation in group.evaluations}
        shown = chosen(group, words().get("ids", "").split(","))[:2]
        st.session_state["label-ids"] = [evaluation.id for evaluation in shown]
        st.multiselect(
            "Two checkpoints",
            list(evaluations),
            format_func=lambda each: evaluations[each].model.label,
            key="label-ids",
            max_selections=2,
            on_change=_take("ids"),
        )
    return group, shown


def _of(pairs: list[Pair], marks: list[Mark]) -> list[Mark]:
    """Those of these two checkpoints."""
    keys = {pair.key for pair in pairs}
    return [mark for mark in marks if mark.pair in keys]


def _judge(group: PanelGroup, pairs: list[Pair], marks: list[Mark]) -> bool:
    """Gives whether this person has judged all: only then may the names be told."""
    user = context.viewer()
    own = [mark for mark in marks if mark.user_id == user.id]
    st.progress(
        len(own) / len(pairs) if pairs else 1.0, text=f"{count_text(len(own))} of {count_text(len(pairs))} judged"
    )
    skipped = frozenset(st.session_state.get("label-skipped", ()))
    pair = next_pair(pairs, marks, user.id, skipped=skipped)
    if pair is None:
        empty_state("All judged", "There is no pair left that you have not judged. Below is what came of it.")
    else:
        left = pair.left_for(user.id)
        if st.session_state.get("label-shown") != pair.key:
            st.session_state["label-shown"], st.session_state["label-since"] = pair.key, time.monotonic()
        texts = (pair.text_a, pair.text_b) if left == "a" else (pair.text_b, pair.text_a)
        pair_view(group.evaluations[0], pair.prompt, *texts)
        _buttons(group, pair)
    if own:
        last = max(own, key=lambda mark: mark.id)
        st.button("Take back the last one", key="label-undo", shortcut="z", on_click=lambda: _undo(last))
    return pair is None


def _buttons(group: PanelGroup, pair: Pair) -> None:
    st.text_input("Why (if you like)", key="label-reason", placeholder="misread the image, wrong unit, …")
    with st.container(horizontal=True, key="label-choices"):
        for word, label in _CHOICES.items():
            st.button(
                label,
                key=f"label-{word}",
                shortcut=_KEYS[word],
                on_click=_mark,
                args=(group.hash, pair, word),
                type="primary" if word in ("left", "right") else "secondary",
            )
        st.button("Skip", key="label-skip", shortcut="s", on_click=lambda: _skip(pair))


def _mark(panel: str, pair: Pair, word: str) -> None:
    with attempted():
        user = context.viewer()
        left = pair.left_for(user.id)
        right = "b" if left == "a" else "a"
        choices: dict[str, Choice] = {"left": left, "right": right, "tie": "tie", "both_bad": "both_bad"}  # type: ignore[dict-item]
        since = st.session_state.get("label-since")
        Marks(context.database(), user).add(
            panel,
            pair.prompt.id,
            pair.a,
            pair.b,
            left=left,
            choice=choices[word],
            reason=(st.session_state.get("label-reason") or "").strip()[:500] or None,
            seconds=None if since is None else round(time.monotonic() - since, 2),
        )
        st.session_state["label-reason"] = ""


def _undo(mark: Mark) -> None:
    with attempted():
        Marks(context.database(), context.viewer()).remove(mark.id)


def _skip(pair: Pair) -> None:
    st.session_state["label-skipped"] = [*st.session_state.get("label-skipped", ()), pair.prompt.id]


def _result(marks: list[Mark], evaluations: list[Evaluation]) -> None:
    wins = agreement(marks).wins
    first, second = (evaluation.model.label for evaluation in evaluations)
    st.subheader("Result", help="Pairs by what most people chose. It is told once you have judged all.")
    st.text(
        f"{first} better: {wins.get('a', 0)}, {second} better: {wins.get('b', 0)}, as good: {wins.get('tie', 0)}, "
        f"both bad: {wins.get('both_bad', 0)}, people divided: {wins.get('split', 0)}"
    )


def _agreement(marks: list[Mark]) -> None:
    """Who judged how many, and how far they agree; nothing of which checkpoint won while one still judges blind."""
    if not marks:
        return
    found = agreement(marks)
    names = {user.id: user.name for user in Users(context.database()).all()}
    st.subheader("Agreement", help="1 is full agreement, 0 what chance would give.")
    counts = ", ".join(f"{names.get(user, user)} {count_text(number)}" for user, number in found.num_marks.items())
    st.text(f"Judged: {counts}")
    for one, other, number, kappa in found.kappas:
        told = "not defined: one choice only" if kappa is None else number_text(kappa, 3)
        st.text(
            f"{names.get(one, one)} and {names.get(other, other)}: Cohen's kappa {told} on {count_text(number)} pairs"
        )
    if len(found.num_marks) > 1:
        told = "not defined" if found.alpha is None else number_text(found.alpha, 3)
        st.text(f"All: Krippendorff's alpha {told}")


def _use(pairs: list[Pair], marks: list[Mark], evaluations: list[Evaluation]) -> None:
    if not marks:
        return
    st.subheader("Train on them")
    with st.form("label-export", border=True), attempted():
        labels = " and ".join(evaluation.model.label for evaluation in evaluations)
        st.caption(
            literal(f"Pairs of {labels} of which most people prefer one answer become rows, chosen and rejected.")
        )
        name = st.text_input("Name of the data set", key="label-name", value="marks")
        if st.form_submit_button("Make the data set"):
            info = register_marks(
                name,
                pairs,
                marks,
                source=f"marks of people on {labels}",
                database=context.database(),
                user=context.viewer(),
            )
            st.session_state["label-made"] = (info.name, sum(split.num_rows for split in info.splits.values()))
    made = st.session_state.get("label-made")
    if made:
        st.text(f"{made[0]}: {count_text(made[1])} pairs")
        with st.container(horizontal=True):
            st.page_link("app_pages/new_run.py", label="New run on them", query_params={"data": made[0]})
            st.page_link("app_pages/dataset.py", label="See the rows", query_params={"name": made[0]})


def _take(name: str, *, forget: str | None = None) -> Callable[[], None]:
    def take() -> None:
        value = st.session_state[f"label-{name}"]
        change(**{name: (",".join(value) if isinstance(value, list) else value) or None})
        if forget is not None:
            change(**{forget: None})

    return take


page()
