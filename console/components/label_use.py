"""What becomes of marks: a file to take along, a data set, and a run that learns from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import streamlit as st

from console import context
from console.components.export_button import export_button
from console.components.parts import attempted
from console.components.text import literal
from console.services.exports import Export, Record
from console.services.formats import count_text
from console.services.label_drawing import Drawing, Item
from console.services.label_items import ItemSource
from console.services.label_results import choices_by_unit
from console.services.mark_data import as_preferences, mark_rows, register_marks
from console.services.mark_runs import base_text
from mmrl.data.registry import DatasetInfo
from mmrl.jobs.marks import Mark

_MADE = "label-made"
"""What the last data set was made of, and that data set: what is judged may be another by the next look."""


def take_along(source: ItemSource, items: Sequence[Item], marks: Sequence[Mark], names: Mapping[str, str]) -> None:
    """Every mark with who, when, which side, and why."""
    with st.container(horizontal=True, vertical_alignment="center", key="label-take"):
        pseudonyms = st.toggle(
            "Names as person 1, person 2, …", value=True, key="label-pseudonyms", help="In the file only."
        )
        by_key = {item.key: item for item in items}

        def records() -> list[Record]:
            rows = mark_rows(items, marks, names, pseudonyms=pseudonyms)
            ordered = sorted(marks, key=lambda mark: mark.id)
            return [
                Record(row, section=f"{row['prompt']}", images=_images(source, by_key.get(mark.item)))
                for row, mark in zip(rows, ordered, strict=True)
            ]

        export_button(
            Export(
                name="marks",
                title=f"Marks of {source.about}",
                records=records,
                total=len(marks),
                about={"answers of": source.about, "people": "pseudonyms" if pseudonyms else "names"},
                content=" ".join(sorted(mark.id for mark in marks)),
            ),
            key="label-export",
        )


def train(source: ItemSource, drawing: Drawing, items: Sequence[Item], marks: Sequence[Mark]) -> None:
    """The data set, then the runs that take it."""
    st.subheader("Train on them")
    rows = as_preferences(items, marks)
    made_of = (source.told, drawing)
    num = len(choices_by_unit(marks))
    st.caption(
        f"{count_text(len(rows))} of {count_text(num)} pairs that were judged become rows, chosen and rejected: those "
        "of which more than half of the people prefer one answer. The others are as good, all bad, or divide people. "
        "A run that learned from these prompts is judged on others: evaluate it on another panel."
    )
    with st.form("label-data", border=True), attempted():
        default = source.dataset_name
        name = st.text_input("Name of the data set", key=f"label-name-{default}", value=default)
        if st.form_submit_button("Make the data set"):
            info = register_marks(
                name.strip(),
                items,
                marks,
                source=source.told,
                database=context.database(),
                user=context.viewer(),
            )
            st.session_state[_MADE] = (made_of, info)
    earlier = st.session_state.get(_MADE)
    if earlier is not None and earlier[0] == made_of:
        _runs(earlier[1], source)


def _runs(info: DatasetInfo, source: ItemSource) -> None:
    """New runs take the version that was made here, also where somebody makes another one meanwhile."""
    ref = f"{info.name}:{info.version}"
    st.text(f"{info.name} of people's marks: {count_text(info.num_rows)} pairs")
    with st.container(horizontal=True, vertical_alignment="bottom", key="label-runs"):
        if source.bases:
            labels = list(source.bases)
            label = st.selectbox(
                "From the weights of",
                labels,
                index=len(labels) - 1,
                key="label-base",
                help="The policy that made the answers: DPO compares with what it would have said.",
            )
            query = {"marks": ref, "base": base_text(label, source.bases[label])}
            st.page_link("app_pages/new_run.py", label="New run: DPO on them", query_params=query)
            st.page_link(
                "app_pages/new_run.py",
                label="New run: a reward model",
                query_params={**query, "goal": "reward_model"},
            )
        else:
            st.caption(literal(f"The checkpoints of {source.about} are gone; choose a model in the form."))
            st.page_link("app_pages/new_run.py", label="New run on them", query_params={"data": ref})
        st.page_link(
            "app_pages/dataset.py", label="See the rows", query_params={"name": info.name, "version": info.version}
        )


def _images(source: ItemSource, item: Item | None) -> tuple[Path, ...]:
    if item is None:
        return ()
    paths = [source.image(image.sha256) for image in item.prompt.images]
    return tuple(path for path in paths if path is not None)
