"""The page Label: which answers are better, judged blind, by keyboard; what comes of it trains the next run.

The address says what is judged. Whoever opens it judges the same items in an order of their own, and sees what others
chose once they have judged all: on the page, in the file to take along, and in the data set made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import streamlit as st

from console import context
from console.components.label_choice import chosen_items
from console.components.label_item import item_view
from console.components.label_keys import Judging, judge, place_notes, undo_button
from console.components.label_people import people, results
from console.components.label_use import take_along, train
from console.components.once import tell_once
from console.components.parts import empty_state, part
from console.services.formats import count_text
from console.services.label_items import Drawing, Item, ItemSource
from console.services.labelling import Begun, known_tags, last_of, next_item, of_items
from mmrl.jobs.marks import Mark, Marks
from mmrl.jobs.roles import is_allowed
from mmrl.jobs.users import Users

Whose = Literal["own", "all"]


def page() -> None:
    st.title("Label")
    tell_once()
    with part("the answers"):
        asked = chosen_items()
        if asked is None:
            return
        source, drawing = asked
        items = source.items(drawing)
        if not items:
            empty_state("Nothing to judge here", "No prompt has two different answers. Choose others above.")
            return
        database, viewer = context.database(), context.viewer()
        marks = Marks(database, viewer)
        found = of_items(items, marks.of_source(source.key))
        may_judge = is_allowed(viewer, "label", settings=database.settings)
        is_done = _judge(source, items, found, marks) if may_judge else True
        names = {user.id: user.name for user in Users(database).all()}
        people(items, found, names)
        if is_done:
            results(items, found, names, source.image)
        _use(source, drawing, items, found, names, told=_whose(found, may_judge=may_judge, is_done=is_done))


def _whose(marks: Sequence[Mark], *, may_judge: bool, is_done: bool) -> Whose:
    """Whose marks this person may take along, said where that is not plain. Admins may have everybody's, who set a
    labelling up without judging themselves."""
    viewer = context.viewer()
    if not may_judge:
        st.caption("You may not judge, so you see what everybody chose. Who judges sees it once they have judged all.")
    elif not is_done and viewer.role != "admin":
        st.caption("Until you have judged all, Export has your own marks alone, and no data set can be made of them.")
        return "own"
    elif not is_done and any(mark.user_id != viewer.id for mark in marks):
        st.caption(
            "As an admin you may take along everybody's marks before you have judged all. Having looked at them, you "
            "judge no longer blind."
        )
    return "all"


def _use(
    source: ItemSource,
    drawing: Drawing,
    items: Sequence[Item],
    marks: Sequence[Mark],
    names: Mapping[str, str],
    *,
    told: Whose,
) -> None:
    viewer = context.viewer().id
    known = [mark for mark in marks if told == "all" or mark.user_id == viewer]
    if known:
        take_along(source, items, known, names)
    if known and told == "all":
        train(source, drawing, items, known)


def _judge(source: ItemSource, items: Sequence[Item], found: Sequence[Mark], marks: Marks) -> bool:
    """Gives whether this person has judged all: only then may be told what others chose, and whose answers they are."""
    user = context.viewer().id
    own = [mark for mark in found if mark.user_id == user]
    st.progress(len(own) / len(items), text=f"{count_text(len(own))} of {count_text(len(items))} judged")
    begun = {item: Begun.of(payload) for item, payload in marks.begun().items()}
    item = next_item(items, found, user, [key for key, each in begun.items() if each.is_skipped])
    judging = None
    if item is None:
        empty_state("All judged", "There is nothing left that you have not judged. Below is what came of it.")
    else:
        shown = item.shown_for(user)
        judging = Judging(marks, source.key, item, shown, begun.get(item.key, Begun()), known_tags(own, user))
        item_view(item, shown, source.image, notes=place_notes(judging))
        judge(judging)
    undo_button(marks, last_of(own, user), judging)
    return item is None


page()
