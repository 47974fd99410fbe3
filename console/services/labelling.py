"""What the page Label asks: which pair comes next for whom, how far people agree, and their marks as a data set."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mmrl.data.normalise import make_sample
from mmrl.data.preference import PAIR
from mmrl.data.registry import DatasetInfo, register
from mmrl.data.serialise import messages_to_json
from mmrl.errors import DataError
from mmrl.evaluation.agreement import cohen_kappa, krippendorff_alpha
from mmrl.evaluation.comparison import side_by_side
from mmrl.evaluation.records import Evaluation
from mmrl.jobs.catalogue import Catalogue
from mmrl.jobs.database import Database
from mmrl.jobs.marks import Answer, Mark, Side
from mmrl.jobs.records import User
from mmrl.jobs.roles import check_allowed
from mmrl.runs.records import ResponseRecord
from mmrl.types import Message, Sample, TextPart

TEST_SHARE = 0.1
"""Of the prompts that a data set of marks holds back, where there are ten or more."""
_MIN_FOR_TEST = 10


@dataclass(frozen=True)
class Pair:
    """Two answers to one prompt, of checkpoints that the person is not told."""

    prompt: Sample
    a: Answer
    b: Answer
    text_a: str
    text_b: str

    @property
    def key(self) -> tuple[str, Answer, Answer]:
        return self.prompt.id, self.a, self.b

    def left_for(self, user_id: str) -> Side:
        """Which answer stands on the left for this person: drawn for each pair and person, and the same at each look,
        so that a reload tells nothing."""
        return random.Random(f"side {user_id} {self.key}").choice(("a", "b"))


@dataclass(frozen=True)
class Agreement:
    """num_marks: by person. kappas: of each two people on the pairs that both judged, with their number. alpha: of all.
    None where it is not defined. wins, ties, bad: pairs by what most people chose; split: no choice had most."""

    num_marks: Mapping[str, int]
    kappas: Sequence[tuple[str, str, int, float | None]]
    alpha: float | None
    wins: Mapping[str, int]


def pairs_of(first: Evaluation, second: Evaluation) -> list[Pair]:
    """Each prompt with one answer of each, the sampled ones in turn; answers that read the same are no pair."""
    found = []
    for row in side_by_side([first.groups(), second.groups()]):
        for one, other in zip(row.responses[0], row.responses[1], strict=False):
            if one.text is not None and other.text is not None and one.text != other.text:
                prompt = Sample(row.prompt_id, row.prompt, row.answer, row.meta)
                found.append(
                    Pair(prompt, _answer(first, one), _answer(second, other), one.text, other.text),
                )
    return found


def next_pair(pairs: Sequence[Pair], marks: Iterable[Mark], user_id: str, *, skipped: frozenset[str]) -> Pair | None:
    """The first that this person has not judged, in an order of their own; skipped ones come last."""
    done = {mark.pair for mark in marks if mark.user_id == user_id}
    left = [pair for pair in pairs if pair.key not in done]
    random.Random(f"order {user_id}").shuffle(left)
    return min(left, key=lambda pair: pair.prompt.id in skipped, default=None)


def agreement(marks: Sequence[Mark]) -> Agreement:
    by_user: dict[str, dict[str, str]] = defaultdict(dict)
    by_pair: dict[str, dict[str, str]] = defaultdict(dict)
    for mark in marks:
        by_user[mark.user_id][str(mark.pair)] = mark.choice
        by_pair[str(mark.pair)][mark.user_id] = mark.choice
    kappas = []
    for one, other in combinations(sorted(by_user), 2):
        shared = sorted(by_user[one].keys() & by_user[other].keys())
        if shared:
            ones, others = ([by_user[user][pair] for pair in shared] for user in (one, other))
            kappas.append((one, other, len(shared), cohen_kappa(ones, others)))
    return Agreement(
        num_marks={user: len(own) for user, own in by_user.items()},
        kappas=kappas,
        alpha=krippendorff_alpha(by_pair),
        wins=Counter(_most(list(choices.values())) for choices in by_pair.values()),
    )


def as_preferences(pairs: Sequence[Pair], marks: Sequence[Mark]) -> list[Sample]:
    """The pairs of which most people prefer one answer, as rows with `chosen` and `rejected`."""
    choices: dict[tuple[str, Answer, Answer], list[str]] = defaultdict(list)
    for mark in marks:
        choices[mark.pair].append(mark.choice)
    rows = []
    for pair in pairs:
        most = _most(choices.get(pair.key, []))
        if most in ("a", "b"):
            texts = (pair.text_a, pair.text_b) if most == "a" else (pair.text_b, pair.text_a)
            meta = dict(pair.prompt.meta)
            for name, text in zip(PAIR, texts, strict=True):
                meta[name] = messages_to_json([Message("assistant", (TextPart(text),))])
            rows.append(make_sample(pair.prompt.messages, pair.prompt.answer, meta))
    return rows


def register_marks(
    name: str, pairs: Sequence[Pair], marks: Sequence[Mark], *, source: str, database: Database, user: User
) -> DatasetInfo:
    """A data set that preference training and reward models take, or a new version of it. All pairs of one prompt are
    in one split.

    Raises DataError where most people preferred no answer, or for a bad name; ForbiddenError for who may not add data.
    """
    check_allowed(user, "data", settings=database.settings)
    rows = as_preferences(pairs, marks)
    if not rows:
        raise DataError("no pair has an answer that most people prefer, so there is nothing to learn; mark some more")
    prompts = sorted({str(row.messages) for row in rows})
    random.Random(0).shuffle(prompts)
    held_back = set(prompts[: round(len(prompts) * TEST_SHARE)]) if len(prompts) >= _MIN_FOR_TEST else set()
    splits = {
        "train": [row for row in rows if str(row.messages) not in held_back],
        "test": [row for row in rows if str(row.messages) in held_back],
    }
    info = register(name, {split: own for split, own in splits.items() if own}, source=source)
    Catalogue(database).note(info, owner_id=user.id)
    return info


def _answer(evaluation: Evaluation, response: ResponseRecord) -> Answer:
    return Answer(evaluation.id, response.sample_idx)


def _most(choices: Sequence[str]) -> str:
    """The choice of most people, `split` where two have as many."""
    counts = Counter(choices).most_common(2)
    if not counts:
        return "none"
    return "split" if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]
