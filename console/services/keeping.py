"""What is kept of a conversation: an exchange as a row of a data set, and a judgement of two answers as a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from console.services.blindness import KnownMarks, known_to
from console.services.conversations import Conversation
from console.services.label_results import choices_by_unit
from mmrl.data.normalise import make_sample
from mmrl.data.preference import PAIR
from mmrl.data.registry import DatasetRegistry
from mmrl.data.serialise import messages_to_json
from mmrl.errors import DataError
from mmrl.evaluation.majority import most_chosen
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Answer, Choice, Mark, Marks
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed
from mmrl.types import Message, Sample, TextPart

SPLIT = "train"
MAX_ROWS = 10_000
"""Of a data set that rows are kept in: each Keep reads it and writes it anew."""
RANKS: dict[Choice, tuple[int, int]] = {"a": (1, 2), "b": (2, 1), "tie": (1, 1), "both_bad": (1, 1)}


@dataclass(frozen=True)
class Kept:
    """dataset: its name. version: the one with the row. num_rows: of its training split. is_new: the row was not in it
    yet."""

    dataset: str
    version: str
    num_rows: int
    is_new: bool


def keep_as_sample(
    conversation: Conversation, turn: int, column: int, answer: str, name: str, *, database: Database, user: User
) -> Kept:
    """A new version of a data set with the exchange as one more row: all that the checkpoint was given, and an answer,
    its own or a better one.

    Raises DataError for an empty answer, a bad name, a data set of pairs, or one of MAX_ROWS; ForbiddenError.
    """
    if not answer.strip():
        raise DataError("the row needs an answer: what should have been said")
    meta = {"source": f"chat {conversation.id}", "checkpoint": conversation.columns[column].label}
    row = make_sample(conversation.prompt(turn, column), answer.strip(), meta)
    return _add(name.strip(), [row], f"kept from chats in the console ({user.name})", database, user)


def mark(
    conversation: Conversation, turn: int, first: int, second: int, choice: Choice, *, reason: str | None, marks: Marks
) -> str:
    """Which of two answers of a turn is better, as one more mark of this person.

    Raises DataError where the two were not asked the same, or one did not answer; ForbiddenError.
    """
    check_comparable(conversation, turn, first, second)
    return marks.add(
        source_of(conversation),
        prompt_of(conversation, turn, first).id,
        [answer_of(conversation, turn, first), answer_of(conversation, turn, second)],
        ranks=RANKS[choice],
        shown=(),
        all_bad=choice == "both_bad",
        reason=reason,
    )


def check_comparable(conversation: Conversation, turn: int, first: int, second: int) -> None:
    """Raises DataError that says why two answers cannot be judged against each other."""
    replies = conversation.turns[turn].replies
    labels = [conversation.columns[column].label for column in (first, second)]
    if first == second:
        raise DataError("choose two checkpoints")
    for column, label in zip((first, second), labels, strict=True):
        if replies[column].state not in ("done", "stopped") or not replies[column].text:
            raise DataError(f"{label} gave no answer to judge")
    if conversation.prompt(turn, first) != conversation.prompt(turn, second):
        raise DataError(
            f"{labels[0]} and {labels[1]} had answered differently before, so that they were not asked the same; ask "
            "this in a new conversation"
        )
    if replies[first].text == replies[second].text:
        raise DataError(f"{labels[0]} and {labels[1]} gave the same answer")


def marks_of(conversation: Conversation, *, database: Database, user: User) -> KnownMarks:
    """Those of this conversation that count for this person: others judge it blind on the page Label."""
    marks = Marks(database, user)
    return known_to(user.id, marks.of_source(source_of(conversation)), marks)


def keep_marks(conversation: Conversation, name: str, *, database: Database, user: User) -> Kept:
    """The pairs of which most people prefer one answer, by `marks_of`, as rows with `chosen` and `rejected`, in a new
    version of a data set. Raises DataError where there is none, and as `keep_as_sample`."""
    rows = list(_pairs(conversation, marks_of(conversation, database=database, user=user).marks))
    if not rows:
        raise DataError("no answer is preferred by most people yet, so there is nothing to learn")
    return _add(name.strip(), rows, f"marks of chats in the console ({user.name})", database, user)


def source_of(conversation: Conversation) -> str:
    return f"chat:{conversation.id}"


def _add(name: str, rows: list[Sample], source: str, database: Database, user: User) -> Kept:
    check_allowed(user, "data", settings=database.settings)
    registry = DatasetRegistry()

    def new_of(earlier: list[Sample]) -> list[Sample]:
        _check_alike(name, earlier, rows)
        known = {row.id for row in earlier}
        return [row for row in {row.id: row for row in rows}.values() if row.id not in known]

    made = registry.extend(name, SPLIT, new_of, source=source, max_rows=MAX_ROWS)
    if made is None:
        found = registry.find(name)
        return Kept(name, found.version, found.splits[SPLIT].num_rows, is_new=False)
    Catalogue(database).note(made, owner_id=user.id)
    return Kept(name, made.version, made.splits[SPLIT].num_rows, is_new=True)


def _check_alike(name: str, earlier: list[Sample], new: list[Sample]) -> None:
    """Rows of pairs and rows with an answer are for different kinds of training."""
    is_pair = [all(column in rows[0].meta for column in PAIR) for rows in (earlier, new) if rows]
    if len(set(is_pair)) > 1:
        kinds = ["pairs" if each else "rows with one answer" for each in is_pair]
        raise DataError(f"data set {name} has {kinds[0]}, and these are {kinds[1]}; choose another name")


def _pairs(conversation: Conversation, marks: Sequence[Mark]) -> Iterator[Sample]:
    for (_, first, second), choices in choices_by_unit(marks).items():
        most = most_chosen(choices.values())
        if most in ("a", "b"):
            chosen, rejected = (first, second) if most == "a" else (second, first)
            yield _pair(conversation, chosen, rejected)


def _pair(conversation: Conversation, chosen: Answer, rejected: Answer) -> Sample:
    turn = turn_of(chosen)
    meta = {"source": f"chat {conversation.id}"}
    for column, answer in zip(PAIR, (chosen, rejected), strict=True):
        text = conversation.turns[turn].replies[answer.sample_idx].text
        meta[column] = messages_to_json([Message("assistant", (TextPart(text),))])  # type: ignore[assignment]
    return make_sample(conversation.prompt(turn, chosen.sample_idx), None, meta)


def turn_of(answer: Answer) -> int:
    return int(answer.source.rpartition(":")[2])


def answer_of(conversation: Conversation, turn: int, column: int) -> Answer:
    return Answer(f"{source_of(conversation)}:{turn}", column)


def prompt_of(conversation: Conversation, turn: int, column: int) -> Sample:
    return make_sample(conversation.prompt(turn, column), None, {})
