"""Marks that were read before, kept for the next look: the page Label asks for all of a task with every key.

A mark never changes (one set anew has another id), so only those are read that were not there at the last look.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from mmrl.jobs.marks import Mark, Marks

MAX_KEPT = 50_000
"""Marks of all sources together; one takes about two kilobytes."""
_KEPT: OrderedDict[str, Mark] = OrderedDict()
_LOCK = Lock()


def marks_of_source(marks: Marks, source: str) -> list[Mark]:
    """As `Marks.of_source`."""
    ids = marks.ids_of_source(source)
    with _LOCK:
        known = {each: _KEPT[each] for each in ids if each in _KEPT}
    known |= {mark.id: mark for mark in marks.by_id([each for each in ids if each not in known])}
    with _LOCK:
        for each, mark in known.items():
            _KEPT[each] = mark
            _KEPT.move_to_end(each)
        while len(_KEPT) > MAX_KEPT:
            _KEPT.popitem(last=False)
    return [known[each] for each in ids if each in known]
