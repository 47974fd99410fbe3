"""Judging by keyboard: two answers with one key, a group by the keys of its answers from the best on.

The keys of the buttons hold the item: a second press that comes before the page shows the next item is about the same
item again, and never about one that nobody has seen. It changes nothing, whichever key it is: a mark that was set is
changed by taking it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from console.components.changes import changed
from console.components.once import say_once
from console.components.parts import attempted
from console.services.label_drawing import Item
from console.services.labelling import MAX_REASON, Begun, ranks_of
from mmrl.jobs.marks import Mark, Marks

_CHOICES: Mapping[str, str] = {
    "left": "Left is better",
    "right": "Right is better",
    "tie": "As good",
    "bad": "Both bad",
}
_KEYS = {"left": "1", "right": "2", "tie": "3", "bad": "4"}
_SINCE = "label-since"


@dataclass(frozen=True)
class Judging:
    """One item before one person. shown: places of its answers from left to right. begun: what they did of it."""

    marks: Marks
    source: str
    item: Item
    shown: tuple[int, ...]
    begun: Begun
    tags: list[str]

    @property
    def is_pair(self) -> bool:
        return len(self.shown) == 2

    def key(self, name: str) -> str:
        return f"label-{name}-{self.item.key[:12]}"

    def keep(self, **changes: object) -> None:
        """What was begun, changed, and as the fields for reason and tags have it now."""
        begun = replace(self._written(), **changes)  # type: ignore[arg-type]
        self.marks.begin(self.item.key, begun.payload())

    def mark(self, ranks: list[int], *, all_bad: bool = False) -> None:
        """ranks: by place of the answers in the item."""
        written = self._written()
        seen, since = st.session_state.get(_SINCE, (None, None))
        self.marks.add(
            self.source,
            self.item.prompt.id,
            self.item.answers,
            ranks=ranks,
            shown=self.shown,
            all_bad=all_bad,
            reason=written.reason.strip() or None,
            tags=written.tags,
            seconds=round(time.monotonic() - since, 2) if seen == self.item.key else None,
            keeps_earlier=True,
        )

    def _written(self) -> Begun:
        state = st.session_state.to_dict()
        return replace(
            self.begun,
            reason=str(state.get(self.key("reason"), self.begun.reason) or "")[:MAX_REASON],
            tags=tuple(state.get(self.key("tags"), self.begun.tags) or ()),
        )


def judge(judging: Judging) -> None:
    """The buttons of an item, each with its key, and the fields for reasons."""
    if st.session_state.get(_SINCE, ("", 0.0))[0] != judging.item.key:
        st.session_state[_SINCE] = judging.item.key, time.monotonic()
    _reasons(judging)
    with st.container(horizontal=True, key="label-choices"):
        if judging.is_pair:
            _pair_buttons(judging)
        else:
            _ranking_buttons(judging)
        st.button("Skip", key=judging.key("skip"), shortcut="s", on_click=partial(_skip, judging))


def undo_button(marks: Marks, last: Mark | None, judging: Judging | None) -> None:
    """Takes back the last answer placed of a ranking under way, else the last mark."""
    if judging is not None and judging.begun.placed:
        earlier = judging.begun.without_last()
        st.button(
            "Take back the last place",
            key="label-undo",
            shortcut="z",
            on_click=partial(_attempt, partial(judging.keep, placed=earlier)),
        )
    elif last is not None:
        st.button("Take back the last one", key="label-undo", shortcut="z", on_click=partial(_undo, marks, last))


def _reasons(judging: Judging) -> None:
    """Kept as they are written: a window that is closed loses nothing."""
    reason, tags = st.columns([3, 2], gap="medium")
    for name, value in (("reason", judging.begun.reason), ("tags", list(judging.begun.tags))):
        st.session_state.setdefault(judging.key(name), value)
    with reason:
        st.text_input(
            "Why (if you like)",
            key=judging.key("reason"),
            placeholder="what decided it",
            max_chars=MAX_REASON,
            on_change=changed(judging.key("reason"), lambda _: _attempt(judging.keep)),
        )
    with tags:
        st.multiselect(
            "Tags",
            list(dict.fromkeys([*judging.tags, *judging.begun.tags])),
            key=judging.key("tags"),
            accept_new_options=True,
            placeholder="choose, or write your own",
            on_change=changed(judging.key("tags"), lambda _: _attempt(judging.keep)),
        )


def _pair_buttons(judging: Judging) -> None:
    for word, label in _CHOICES.items():
        st.button(
            label,
            key=judging.key(word),
            shortcut=_KEYS[word],
            on_click=partial(_mark_pair, judging, word),
            type="primary" if word in ("left", "right") else "secondary",
        )


def _ranking_buttons(judging: Judging) -> None:
    """Each answer is one press, from the best to the worst; the last press is the mark."""
    placed = {answer for level in judging.begun.placed for answer in level}
    beside = st.session_state.setdefault(judging.key("beside"), False)
    for number, answer in enumerate(judging.shown, start=1):
        st.button(
            f"Answer {number}",
            key=judging.key(f"place-{number}"),
            shortcut=str(number),
            disabled=answer in placed,
            on_click=partial(_place, judging, answer),
            type="primary",
        )
    st.button(
        "Next is as good as the last" + (" ✓" if beside else ""),
        key=judging.key("tie"),
        shortcut="t",
        disabled=not placed,
        on_click=partial(_turn, judging.key("beside")),
    )
    all_bad: Callable[[], None] = partial(judging.mark, [1] * len(judging.shown), all_bad=True)
    st.button("All bad", key=judging.key("bad"), shortcut="b", on_click=partial(_attempt, all_bad))


def _mark_pair(judging: Judging, word: str) -> None:
    ranks = [1, 1]
    if word in ("left", "right"):
        ranks[judging.shown[1 if word == "left" else 0]] = 2
    _attempt(partial(judging.mark, ranks, all_bad=word == "bad"))


def _place(judging: Judging, answer: int) -> None:
    """On what is kept, which may be further than what the page shows: keys may come faster than it is drawn."""
    with attempted():
        begun = Begun.of(judging.marks.begun().get(judging.item.key))
        if any(answer in level for level in begun.placed):
            return
        placed = begun.place(answer, beside_last=bool(st.session_state.to_dict().get(judging.key("beside"))))
        st.session_state[judging.key("beside")] = False
        if sum(map(len, placed)) < len(judging.shown):
            judging.keep(placed=placed)
        else:
            judging.mark(ranks_of(placed, len(judging.shown)))


def _turn(key: str) -> None:
    st.session_state[key] = not st.session_state.to_dict().get(key)


def _skip(judging: Judging) -> None:
    _attempt(partial(judging.keep, is_skipped=True))


def _undo(marks: Marks, last: Mark) -> None:
    """What was written with it is there again, to be changed."""

    def take_back() -> None:
        marks.remove(last.id)
        marks.begin(last.item, Begun(last.reason or "", last.tags).payload())
        say_once("Taken back")

    _attempt(take_back)


def _attempt(act: Callable[[], object]) -> None:
    with attempted():
        act()
