"""Agreement of the rewards that answers were given with people's marks of them: nothing is scored anew."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mmrl.errors import MmrlError
from mmrl.evaluation.finding import all_evaluations
from mmrl.evaluation.majority import most_chosen
from mmrl.evaluation.reward_agreement import Judged, OrderAgreement, order_agreement
from mmrl.jobs.job_reads import JobReads
from mmrl.jobs.marks import Answer, Choice, Mark
from mmrl.jobs.records import local_path
from mmrl.runs.reader import RunReader
from mmrl.runs.records import GroupRecord, ResponseRecord

TOTAL = "total"


@dataclass(frozen=True)
class MarkedPair:
    """Two answers and the choices that people made between them, one of each person."""

    prompt_id: str
    a: Answer
    b: Answer
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class MarkedRewards:
    """num_pairs: that people judged. num_unknown: pairs of them with an answer that is gone or was never scored, as in
    a chat. agreements: the total first, then each part by name."""

    num_pairs: int
    num_unknown: int
    num_people: int
    agreements: tuple[OrderAgreement, ...]


def marked_rewards(marks: Sequence[Mark], jobs: JobReads) -> MarkedRewards:
    """What all marks together say of each reward."""
    pairs = marked_pairs(marks)
    if not pairs:
        return MarkedRewards(0, 0, 0, ())
    values = _Values(jobs)
    known = [(pair, values.of(pair.prompt_id, pair.a), values.of(pair.prompt_id, pair.b)) for pair in pairs]
    scored = [(pair, a, b) for pair, a, b in known if a and b]
    names = dict.fromkeys(name for _, a, b in scored for name in (*a, *b))
    agreements = tuple(
        order_agreement(
            name,
            [
                Judged(pair.prompt_id, most_chosen(pair.choices), a.get(name), b.get(name))
                for pair, a, b in scored
                if name in {*a, *b}
            ],
        )
        for name in sorted(names, key=lambda name: (name != TOTAL, name))
    )
    return MarkedRewards(len(pairs), len(pairs) - len(scored), len({mark.user_id for mark in marks}), agreements)


def marked_pairs(marks: Iterable[Mark]) -> list[MarkedPair]:
    """Each two answers that somebody judged, a ranking as all of its pairs. Who judged the same two more than once, as
    a pair and in a ranking, has one vote: the last."""
    found: dict[tuple[str, Answer, Answer], dict[str, Choice]] = defaultdict(dict)
    for mark in sorted(marks, key=lambda mark: mark.id):
        for a, b, choice in mark.choices():
            found[mark.prompt_id, a, b][mark.user_id] = choice
    return [MarkedPair(*key, tuple(choices.values())) for key, choices in found.items()]


class _Values:
    """The rewards of answers, by name; files are read once."""

    def __init__(self, jobs: JobReads) -> None:
        self._jobs = jobs
        self._evaluations = {evaluation.id: evaluation for evaluation in all_evaluations()}
        self._groups: dict[str, Mapping[str, GroupRecord]] = {}

    def of(self, prompt_id: str, answer: Answer) -> dict[str, float | None]:
        """Empty where the answer is gone, or was not scored."""
        group = self._group(prompt_id, answer.source)
        response = (
            next((each for each in group.responses if each.sample_idx == answer.sample_idx), None) if group else None
        )
        return _rewards(response) if response is not None else {}

    def _group(self, prompt_id: str, source: str) -> GroupRecord | None:
        if source not in self._groups:
            try:
                self._groups[source] = {group.prompt_id: group for group in self._read(source)}
            except (MmrlError, OSError, ValueError, KeyError, TypeError):
                self._groups[source] = {}
        return self._groups[source].get(prompt_id)

    def _read(self, source: str) -> Sequence[GroupRecord]:
        if source in self._evaluations:
            return self._evaluations[source].groups()
        job_id, split, step, group_id = source.split("/")
        folder = local_path(self._jobs.get(job_id).run_dir)
        if folder is None:
            return ()
        groups = RunReader(folder).sample_groups(int(step), split, with_tokens=False)
        return [group for group in groups if group.group_id == int(group_id)]


def _rewards(response: ResponseRecord) -> dict[str, float | None]:
    if not response.parts:
        return {}
    return {TOTAL: response.reward, **{part.name: part.value for part in response.parts}}
