"""People's marks as data: a data set of pairs that preference training takes, and a table of who chose what."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from console.services.label_drawing import Candidate, Item
from console.services.label_results import choices_by_unit
from mmrl.data.normalise import make_sample
from mmrl.data.preference import PAIR
from mmrl.data.registry import DatasetInfo, DatasetRegistry
from mmrl.data.serialise import messages_to_json
from mmrl.errors import DataError
from mmrl.evaluation.majority import most_chosen
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Answer, Mark
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed
from mmrl.types import Message, Sample, TextPart

TEST_SHARE = 0.1
"""Of the prompts that a data set of marks holds back, where there are fifty or more: fewer pairs would tell nothing."""
_MIN_FOR_TEST = 50


def as_preferences(items: Iterable[Item], marks: Iterable[Mark]) -> list[Sample]:
    """Each two answers of which most people prefer one, as a row with `chosen` and `rejected`; `votes` and `num_people`
    tell how many preferred it, of how many. A ranking gives a row for each two answers that it tells apart."""
    known: dict[str, dict[Answer, Candidate]] = {}
    prompts: dict[str, Sample] = {}
    for item in items:
        known[item.key] = {candidate.answer: candidate for candidate in item.candidates}
        prompts[item.key] = item.prompt
    rows = []
    for (key, one, other), choices in choices_by_unit(marks).items():
        most = most_chosen(choices.values())
        if key in known and most in ("a", "b"):
            pair = [known[key][answer] for answer in ((one, other) if most == "a" else (other, one))]
            votes = sum(choice == most for choice in choices.values())
            rows.append(_row(prompts[key], pair, votes, len(choices)))
    return rows


def register_marks(
    name: str, items: Sequence[Item], marks: Sequence[Mark], *, source: str, database: Database, user: User
) -> DatasetInfo:
    """A data set that preference training and reward models take, or a new version of one made from the same source. It
    has only these pairs, all of one prompt in one split: a split of an earlier version could hold prompts that are
    trained on now.

    source: what it is made from. Raises DataError where most people preferred no answer, for a bad name, and for the
    name of a data set made from something else; ForbiddenError for who may not add data.
    """
    check_allowed(user, "data", settings=database.settings)
    rows = as_preferences(items, marks)
    if not rows:
        raise DataError("no pair has an answer that most people prefer, so there is nothing to learn; mark some more")
    prompts = sorted({str(row.messages) for row in rows})
    random.Random(0).shuffle(prompts)
    held_back = set(prompts[: round(len(prompts) * TEST_SHARE)]) if len(prompts) >= _MIN_FOR_TEST else set()
    splits = {
        "train": [row for row in rows if str(row.messages) not in held_back],
        "test": [row for row in rows if str(row.messages) in held_back],
    }
    registry = DatasetRegistry()
    _check_replaces(registry, name, source)
    held = {split: own for split, own in splits.items() if own}
    info = registry.register(name, held, source=source, keeps_splits=False)
    Catalogue(database).note(info, owner_id=user.id)
    return info


def mark_rows(
    items: Iterable[Item], marks: Iterable[Mark], names: Mapping[str, str], *, pseudonyms: bool
) -> list[dict[str, Any]]:
    """A row for each mark, the oldest first: who, when, what was shown in which order, what they chose and why.

    names: of people by id. pseudonyms: `person 1` and so on, by when each first judged, in place of names.
    """
    marks = sorted(marks, key=lambda mark: mark.id)
    order = list(dict.fromkeys(mark.user_id for mark in marks))
    told = {user: f"person {place}" if pseudonyms else names.get(user, user) for place, user in enumerate(order, 1)}
    known = {item.key: item for item in items}
    return [_mark_row(mark, known.get(mark.item), told[mark.user_id]) for mark in marks]


def _check_replaces(registry: DatasetRegistry, name: str, source: str) -> None:
    if registry.has(name) and (earlier := registry.find(name).source) != source:
        raise DataError(
            f"there is a data set {name!r} made from {earlier}, and its rows would be replaced by {source}; choose "
            "another name"
        )


def _row(prompt: Sample, pair: Sequence[Candidate], votes: int, num_people: int) -> Sample:
    meta = dict(prompt.meta) | {"votes": votes, "num_people": num_people}
    for name, candidate in zip(PAIR, pair, strict=True):
        meta[name] = messages_to_json([Message("assistant", (TextPart(candidate.text),))])
    return make_sample(prompt.messages, prompt.answer, meta)


def _mark_row(mark: Mark, item: Item | None, person: str) -> dict[str, Any]:
    """Answers are numbered as they stood from left to right, else in their own order; None where their files are
    gone."""
    texts: dict[Answer, Candidate] = {each.answer: each for each in item.candidates} if item is not None else {}
    places = mark.shown or range(len(mark.answers))
    shown = [mark.answers[place] for place in places]
    ranks = [mark.ranks[place] for place in places]
    row: dict[str, Any] = {
        "person": person,
        "time": mark.created_at.isoformat(timespec="seconds"),
        "prompt_id": mark.prompt_id,
        "prompt": item.prompt.messages[-1].text if item is not None and item.prompt.messages else None,
        "reference_answer": item.prompt.answer if item is not None else None,
        "choice": _chosen_side(mark, ranks),
        "ranks": ranks,
        "all_bad": mark.all_bad,
        "reason": mark.reason,
        "tags": list(mark.tags),
        "seconds": mark.seconds,
    }
    row["answers"] = [texts[answer].text if answer in texts else None for answer in shown]
    row["made_by"] = [texts[answer].by if answer in texts else None for answer in shown]
    row["rewards"] = [texts[answer].reward if answer in texts else None for answer in shown]
    row["sources"] = [f"{answer.source}#{answer.sample_idx}" for answer in shown]
    return row


def _chosen_side(mark: Mark, ranks: Sequence[int]) -> str:
    """Of a pair left or right, first or second where no sides were drawn; of more the numbers of the best ones."""
    if mark.all_bad:
        return "both bad" if len(ranks) == 2 else "all bad"
    best = [place for place, rank in enumerate(ranks, start=1) if rank == 1]
    if len(ranks) == 2:
        sides = ("left", "right") if mark.shown else ("first", "second")
        return "tie" if len(best) == 2 else sides[best[0] - 1]
    return " and ".join(map(str, best)) + " best"
