"""The page Label: which answers are better, judged blind, by keyboard; what comes of it trains the next run.

The address says what is judged. Whoever opens it judges the same items in an order of their own, and is told what
others chose once they have judged all and ask for it: on the page, in the file to take along, and in the data set made
of it. From then on their own marks stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import streamlit as st

from console import context
from console.components.label_choice import chosen_items
from console.components.label_item import item_view
from console.components.label_keys import Judging, judge, undo_button
from console.components.label_order import order_strip, place_notes
from console.components.label_people import people, results
from console.components.label_use import take_along, train
from console.components.once import tell_once
from console.components.parts import attempted, empty_state, part
from console.services.formats import count_text
from console.services.kept_marks import marks_of_source
from console.services.label_drawing import Drawing, Item
from console.services.label_items import ItemSource
from console.services.labelling import Begun, known_tags, last_of, next_item, of_items
from mmrl.jobs.marks import Mark, Marks
from mmrl.jobs.roles import is_allowed
from mmrl.jobs.users import Users

Whose = Literal["own", "all"]


def page() -> None:
    st.title("Label")
    st.caption(
        "Judge which of two answers, or of a group, is better, without knowing whose they are. What people prefer "
        "tells which checkpoint is better, and becomes a data set that the next run learns from."
    )
    tell_once()
    with part("the answers"):
        asked = chosen_items()
        if asked is None:
            return
        source, drawing = asked
        drawn = source.draw(drawing)
        items = drawn.items
        if not items:
            empty_state("Nothing to judge here", f"{drawn.left_out or 'There are no answers.'} Choose others above.")
            return
        if drawn.left_out:
            st.caption(drawn.left_out)
        database, viewer = context.database(), context.viewer()
        marks = Marks(database, viewer)
        found = of_items(items, marks_of_source(marks, source.key))
        may_judge = is_allowed(viewer, "label", settings=database.settings)
        is_told = _is_told(items, marks, may_judge=may_judge)
        is_done = not may_judge or _judge(source, items, found, marks, is_told=is_told)
        names = {user.id: user.name for user in Users(database).all()}
        people(items, found, names)
        if is_told:
            results(source, items, found, names)
        else:
            _before_results(items, found, marks, is_done=is_done)
        _use(source, drawing, items, found, names, told="all" if is_told else "own")


def _is_told(items: Sequence[Item], marks: Marks, *, may_judge: bool) -> bool:
    """Whether this person knows what others chose of all of these. Who may not judge is told at once, which is noted
    too: they may be allowed to judge later."""
    keys = [item.key for item in items]
    if not may_judge:
        marks.tell(keys)
        st.caption("You may not judge, so you see what everybody chose. Who judges sees it once they have judged all.")
        return True
    return marks.told(keys) == set(keys)


def _before_results(items: Sequence[Item], found: Sequence[Mark], marks: Marks, *, is_done: bool) -> None:
    """How to get at what came of it. Admins may before they have judged, who set a labelling up for others."""
    viewer = context.viewer()
    if not is_done and viewer.role != "admin":
        st.caption("Until you have judged all, Export has your own marks alone, and no data set can be made of them.")
        return
    if not is_done and all(mark.user_id == viewer.id for mark in found):
        return
    with st.container(border=True, key="label-before", gap="small"):
        st.write(
            "Having seen what came of it you can take back none of your marks of these any more."
            if is_done
            else "As an admin you may see what others chose before you have judged all. You then judge no longer "
            "blind, and can take back none of your marks of these."
        )
        keys = [item.key for item in items]
        st.button(
            "See what came of it",
            key="label-reveal",
            shortcut="v" if is_done else None,
            type="primary" if is_done else "secondary",
            on_click=_reveal,
            args=(marks, keys),
        )


def _reveal(marks: Marks, keys: Sequence[str]) -> None:
    with attempted():
        marks.tell(keys)


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


def _judge(source: ItemSource, items: Sequence[Item], found: Sequence[Mark], marks: Marks, *, is_told: bool) -> bool:
    """Gives whether this person has judged all: only then may be told what others chose, and whose answers they are."""
    user = context.viewer().id
    own = [mark for mark in found if mark.user_id == user]
    st.progress(len(own) / len(items), text=f"{count_text(len(own))} of {count_text(len(items))} judged")
    begun = {item: Begun.of(payload) for item, payload in marks.begun().items()}
    item = next_item(items, found, user, [key for key, each in begun.items() if each.is_skipped])
    judging = None
    if item is None:
        empty_state("All judged", "There is nothing left that you have not judged.")
    else:
        shown = item.shown_for(user)
        judging = Judging(marks, source.key, item, shown, begun.get(item.key, Begun()), known_tags(own, user))
        item_view(item, shown, source.image, notes=place_notes(judging))
        order_strip(judging)
        judge(judging)
    undo_button(marks, None if is_told else last_of(own, user), judging)
    return item is None


page()
