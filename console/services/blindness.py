"""Whose marks are made use of for whom: whoever may still judge an item is kept from what others chose of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mmrl.jobs.marks import Mark, Marks


@dataclass(frozen=True)
class KnownMarks:
    """marks: the person's own, and everybody's of items of which they were told what others chose. num_hidden: marks of
    others that are left out."""

    marks: tuple[Mark, ...]
    num_hidden: int

    @property
    def note(self) -> str:
        """What is left out, and until when; empty where nothing is."""
        if not self.num_hidden:
            return ""
        return (
            f"Others' marks ({self.num_hidden:,}) are left out here until the page Label has told you what came of "
            "them, so that you judge blind."
        )


def known_to(user_id: str, found: Sequence[Mark], marks: Marks) -> KnownMarks:
    """found: everybody's. marks: in the name of that person. They are told no more than Label has told them, so nothing
    is noted."""
    told = marks.told({mark.item for mark in found})
    known = tuple(mark for mark in found if mark.user_id == user_id or mark.item in told)
    return KnownMarks(known, len(found) - len(known))
