"""Items to judge and marks of them, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from evaluation_builders import SETTINGS, evaluated

from console.services.label_drawing import Candidate, Item
from console.services.label_items import ItemSource, panel_source
from mmrl.config.base import home
from mmrl.data.images import ImageStore
from mmrl.evaluation.panels import panel_of, save_panel
from mmrl.jobs.marks import Answer, Choice, Mark
from mmrl.types import Message, Sample, TextPart

RANKS = {"a": (1, 2), "b": (2, 1), "tie": (1, 1), "both_bad": (1, 1)}


def panel_items(num: int) -> ItemSource:
    """`num` prompts, two answers of each of two checkpoints: of even numbers the second answers are alike, and the
    first of the older one is right."""
    prompts = [Sample(f"s{n}", (Message("user", (TextPart(f"Digit {n}?"),)),), f"old {n - n % 2}") for n in range(num)]
    panel = panel_of(prompts, SETTINGS, name="digits")
    save_panel(panel, ImageStore())
    run = home() / "a-run"
    return panel_source(
        [
            evaluated(
                panel, step, *((f"{word} {n}", f"{word if n % 2 else 'same'} again") for n in range(num)), run=run
            )
            for step, word in ((0, "old"), (9, "new"))
        ]
    )


def item(prompt_id: str, *texts: str, by: Sequence[str] = ()) -> Item:
    """By default each answer is of a maker of its own: run@0, run@1, …"""
    makers = by or [f"run@{number}" for number in range(len(texts))]
    candidates = [
        Candidate(Answer(f"step-{number}", 0), text, None, makers[number]) for number, text in enumerate(texts)
    ]
    return Item(Sample(prompt_id, (Message("user", (TextPart(f"What is {prompt_id}?"),)),), "x"), tuple(candidates))


def pair(prompt_id: str) -> Item:
    return item(prompt_id, f"one of {prompt_id}", f"other of {prompt_id}")


def mark_of(
    of: Item,
    choice: Choice | Sequence[int],
    user: str = "mia",
    *,
    id: str = "id",
    at: datetime | None = None,
    reason: str | None = None,
    tags: tuple[str, ...] = (),
    shown: tuple[int, ...] | None = None,
) -> Mark:
    """choice: of a pair; else the ranks."""
    return Mark(
        id=id,
        source="panel",
        item=of.key,
        prompt_id=of.prompt.id,
        answers=of.answers,
        shown=tuple(range(len(of.answers))) if shown is None else shown,
        ranks=RANKS[choice] if isinstance(choice, str) else tuple(choice),
        all_bad=choice == "both_bad",
        reason=reason,
        tags=tags,
        seconds=None,
        user_id=user,
        created_at=at or datetime.now(UTC),
    )
